// A partner's file with what a step of a procedure edits in it.
import { loadRegistry } from "../../src/federation/registry/load.ts";
import type { PartnerEntry, PlaneState } from "../../src/federation/registry/partner.ts";
import { stepEdits } from "../../src/federation/workflow/plan.ts";
import type { Step } from "../../src/federation/workflow/procedures.ts";
import { editYaml } from "../../src/runtime/edit-yaml.ts";
import { registryFiles } from "./sample-files.ts";

const REGISTRY = loadRegistry(registryFiles());
const LIGHTHOUSE = "registry/partners/lighthouse.yaml";

/** The edits of a step for the partner of the sample registry. */
export function editsForLighthouse(step: Pick<Step, "plane" | "direction" | "edit">) {
  return stepEdits(step, REGISTRY, REGISTRY.partners.find(({ file }) => file === LIGHTHOUSE) as PartnerEntry);
}

export function setPlane(text: string, plane: NonNullable<Step["plane"]>, direction: PlaneState): string {
  return editYaml(text, editsForLighthouse({ plane, direction, edit: "plane" }));
}

export function setContained(text: string, contained: boolean): string {
  const direction = contained ? "closed" : "open";
  return editYaml(text, editsForLighthouse({ plane: "gateway", direction, edit: "contained" }));
}
