// What each step of a procedure changes in the registry: as a plan, before anything is changed, and as a commit.
// Invariants: a plan writes nothing to the repository, and asks no real part; what is planned is what is committed.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Direction } from "../../records/conditions/condition.ts";
import { editYaml, type YamlEdit } from "../../runtime/edit-yaml.ts";
import { type ChangeBase, changeBase } from "../change/change-base.ts";
import {
  type ChangeOptions,
  type Committed,
  changesOf,
  commitChange,
  type Proposal,
} from "../change/commit-change.ts";
import type { PlaneName } from "../plane-order.ts";
import { planeOfPath, renderAll } from "../planes/render.ts";
import type { Federation } from "../reconcile/context.ts";
import { findPartner, type PartnerEntry, partnerEntry, retireAll } from "../registry/partner.ts";
import { retiredIn } from "../registry/retired-identities-checks.ts";
import { git } from "../repository/git.ts";
import { labelOf, type Procedure, type Step } from "./procedures.ts";

/** `steps`: what is left, in the order in which it will be done; `partner`: the server name. */
export type Plan = Readonly<Awaited<ReturnType<typeof plan>>>;
export type PlannedStep = Readonly<Plan["steps"][number]>;

const INTERRUPTS: Readonly<Record<Direction, Readonly<Record<PlaneName, string>>>> = {
  closed: {
    gateway:
      "New calls of the partner's client are refused at once; calls that had begun run to their end, streams too.",
    card: "Questions to the partner's agents are refused at once; nobody else's card or question is touched.",
    rooms:
      "The partner's people leave every governed room; rooms may be replaced, as its entry says, and a replaced one is deleted with its history.",
    border: "What the partner sends is dropped from the next event on; the policy is read live.",
    transport: "The homeserver restarts: everybody waits until it answers again, and nothing is lost.",
  },
  open: {
    gateway: "Nothing restarts; the gateway reloads its routes.",
    card: "Nothing restarts; the bridge checks the partner's cards again.",
    rooms: "Nothing restarts; kept rooms that are replaced end for their people, who are moved.",
    border: "Nothing restarts; the policy applies from the next event on.",
    transport: "The homeserver restarts once: nobody loses an event, sending waits some seconds.",
  },
};
const DUTIES_INTERRUPT = "Nothing is interrupted; what is purged is gone for good.";

/** @param stateOf undefined for a step that is done. @throws DrawbridgeError `usage`, `head_refused`; RegistryError */
export async function plan(
  context: Federation,
  procedure: Procedure,
  named: string,
  stateOf: (step: Step) => string | undefined = () => "pending",
  before?: ChangeBase["registry"],
) {
  const base = await changeBase(context, procedure.onBadHead, named);
  const entry = findPartner(base.registry, named);
  const [first] = procedure.steps;
  const steps = [];
  let text = await base.textOf(entry.file);
  let renders = renderAll(base.registry);
  let changed: Awaited<ReturnType<typeof differences>> = [];
  for (const step of procedure.steps) {
    const { plane, direction, edit } = step;
    if (procedure.commits === "each" || step === first) {
      text = editYaml(text, stepEdits(step, base.registry, entry, before));
      const after = renderAll((await changesOf(context, base, new Map([[entry.file, text]]))).after);
      changed = await differences(renders, after);
      renders = after;
    }
    const state = stateOf(step);
    if (state === undefined) continue;
    const leftAlone = plane === null ? DUTIES_INTERRUPT : `Left alone by a ${procedure.name} removal.`;
    steps.push({
      ...{ ...labelOf(step), state },
      interrupts: plane === null || edit === null ? leftAlone : INTERRUPTS[direction][plane],
      restarts: plane === "transport" && edit !== null ? ("homeserver" as const) : null,
      files:
        procedure.commits === "each" ? changed : changed.filter(({ path }) => planeOfPath(path) === plane),
    });
  }
  return { procedure: procedure.name, partner: entry.partner.serverName, steps };
}

/**
 * What a step edits in the partner's entry; a retired key that another entry pins is retired for this partner alone.
 * @param before the registry when the procedure began: what was taken out of it since is retired as well
 */
export function stepEdits(
  { plane, direction, edit }: Pick<Step, "plane" | "direction" | "edit">,
  registry: ChangeBase["registry"],
  { file, partner }: Pick<PartnerEntry, "file" | "partner">,
  before = registry,
): readonly YamlEdit[] {
  if (plane === null || edit === null) return [];
  if (edit === "contained") return [{ path: ["contained"], value: direction === "closed" }];
  const moved = { path: ["planes", plane], value: direction };
  if (edit === "plane") return [moved];
  const earlier = partnerEntry(before, partner.serverName)?.partner ?? partner;
  const known = retireAll(before, { ...earlier, retired: partner.retired });
  const all = retireAll(registry, { ...partner, retired: known });
  return [moved, { path: ["retired"], value: { ...all, cardKeys: retiredIn(registry, file, all.cardKeys) } }];
}

interface StepCommit extends Omit<ChangeOptions, "propose" | "onBadHead" | "about" | "examine"> {
  readonly partner: string;
  /** As `stepEdits` takes it. */
  readonly before?: ChangeBase["registry"] | undefined;
  /** What else is proposed; `isSame`: the partner's file says already what it would say. As `propose` otherwise. */
  readonly say: (
    base: ChangeBase,
    entry: PartnerEntry,
    isSame: boolean,
  ) => Promise<Omit<Proposal, "file" | "edits"> | undefined>;
}

/** Makes the commit of a step, or finds that there is none to be made. @throws as `commitChange`; and what `say` throws */
export const commitStep = (
  context: Federation,
  { onBadHead }: Procedure,
  step: Step,
  { partner, before, say, ...options }: StepCommit,
): Promise<Committed> =>
  commitChange(context, {
    ...{ ...options, onBadHead, about: partner },
    propose: async (base) => {
      const entry = findPartner(base.registry, partner);
      const present = await base.textOf(entry.file);
      const edits = stepEdits(step, base.registry, entry, before);
      const said = await say(base, entry, editYaml(present, edits) === present);
      return said && { file: entry.file, edits, ...said };
    },
  });

async function differences(before: ReadonlyMap<string, string>, after: ReadonlyMap<string, string>) {
  const paths = [...new Set([...before.keys(), ...after.keys()])].sort();
  const changed = paths.filter((path) => before.get(path) !== after.get(path));
  const diffOf = (path: string) => unifiedDiff(before.get(path), after.get(path));
  return Promise.all(changed.map(async (path) => ({ path, diff: await diffOf(path) })));
}

async function unifiedDiff(before = "", after = ""): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "drawbridge-plan-"));
  try {
    writeFileSync(join(folder, "before"), before, { mode: 0o600 });
    writeFileSync(join(folder, "after"), after, { mode: 0o600 });
    const args = ["diff", "--no-index", "--no-color", "--unified=2", "before", "after"];
    const { stdout } = await git(args, { cwd: folder });
    const text = stdout.toString("utf8");
    return text.slice(Math.max(text.indexOf("\n@@") + 1, 0));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
