// Where a re-admission stands, from its file alone.

import { goodState } from "../reconcile/accept-head.ts";
import { findPartner } from "../registry/partner.ts";
import type { RoomsChoice } from "../registry/readmission-record.ts";
import { plan } from "../workflow/plan.ts";
import { labelOf, READMISSION, type StepStatus } from "../workflow/procedure.ts";
import type { WorkflowContext } from "./next-step.ts";
import { type Readmission, requireReadmission, stageOf } from "./readmission.ts";

export function readmissionStatus(readmission: Readmission) {
  const { id, partner, approval, rooms, touched, completion, done } = readmission;
  return {
    ...{ id, partner, approval, rooms, touched, openedAt: readmission.opened_at, done },
    completedAt: done ? (completion?.at ?? null) : null,
    steps: READMISSION.steps.map((step): StepStatus<"pending" | "proving" | "proved"> => {
      const { proved_at: provedAt = null, revision: commit = null } = stageOf(readmission, step.plane) ?? {};
      const state = provedAt !== null ? "proved" : commit !== null ? "proving" : "pending";
      return {
        ...labelOf(step),
        ...{ own: { state, since: provedAt }, other: null, commit, openedAt: null, provedAt, blocks: [] },
      };
    }),
  };
}

/** @throws DrawbridgeError `usage`, `head_refused`; RegistryError when a step's result would be refused */
export async function planReadmission(
  context: WorkflowContext,
  named: string,
  choice: RoomsChoice | undefined,
) {
  const { desired } = await goodState(context);
  const { partner } = findPartner(desired.registry, named);
  const readmission = requireReadmission(context.state, partner.serverName);
  const { id, rooms, touched } = readmission;
  const planned = await plan(context, READMISSION, named, ({ plane }) => {
    const stage = plane === null ? undefined : stageOf(readmission, plane);
    return stage?.proved_at != null ? "proved" : stage?.revision != null ? "committed" : "pending";
  });
  const isBefore = partner.planes.rooms === "closed";
  return {
    ...{ ...planned, id, rooms: choice ?? rooms ?? "new" },
    touched: isBefore ? await context.rooms.observe(desired, partner.serverName) : (touched ?? []),
  };
}
