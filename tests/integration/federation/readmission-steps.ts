// What tests of a re-admission read of its repository, and how they walk through its steps.
import assert from "node:assert/strict";
import { DrawbridgeError } from "../../../src/domain/errors.ts";
import type { Guard } from "../../../src/federation/agents/identity-rules.ts";
import { PLANE_NAMES } from "../../../src/federation/plane-order.ts";
import { renderAll } from "../../../src/federation/planes/render.ts";
import { nextStep } from "../../../src/federation/readmission/next-step.ts";
import type { WorkflowContext } from "../../../src/federation/readmission/rooms.ts";
import { ReadmissionRecord } from "../../../src/federation/registry/committed-records.ts";
import { loadRegistry } from "../../../src/federation/registry/load.ts";
import type { Repository } from "../../../src/federation/repository/repository.ts";
import { APPROVAL, FRESH } from "../../support/readmission.ts";

export const PARTNER = { partner: "lighthouse" } as const;
export const OPEN = { ...PARTNER, approval: APPROVAL, identities: FRESH };

export async function entryOf(repository: Repository) {
  const files = await repository.read(await repository.requireHead(), ["registry", "rendered", "kubernetes"]);
  const registry = loadRegistry(files);
  const rendered = [...files].filter(([path]) => !path.startsWith("registry/")).sort();
  assert.deepEqual(rendered, [...renderAll(registry)].sort(), "what is committed is what is rendered");
  return registry.partners.find(({ name }) => name === "lighthouse")?.partner ?? assert.fail();
}

export async function refusedBy(guard: Guard, work: Promise<unknown>): Promise<void> {
  await assert.rejects(work, (error) => {
    assert.ok(error instanceof DrawbridgeError && error.code === "guard_refused", String(error));
    assert.ok(error.message.endsWith(`[${guard}]`), error.message);
    return true;
  });
}

export async function records(repository: Repository): Promise<ReadmissionRecord[]> {
  const files = await repository.read(await repository.requireHead(), ["records/readmission"]);
  const all = [...files.values()].map((text) => ReadmissionRecord.parse(JSON.parse(text)));
  return all.sort((left, right) => (left.act < right.act ? 1 : -1));
}

export async function runAllSteps(context: WorkflowContext, rooms?: "new" | "reopen") {
  const steps = [];
  for (const _plane of PLANE_NAMES) steps.push(await nextStep(context, { ...PARTNER, rooms }));
  return steps;
}
