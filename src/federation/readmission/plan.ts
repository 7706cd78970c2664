// What each step of a re-admission that is left would change, and what becomes of the rooms.
import { goodState } from "../reconcile/accept-head.ts";
import { findPartner } from "../registry/find-partner.ts";
import { type Plan, plan } from "../workflow/plan.ts";
import { READMISSION } from "../workflow/procedure.ts";
import { requireReadmission, type TouchedRoom } from "./readmission.ts";
import type { RoomsChoice } from "./readmission-record.ts";
import type { WorkflowContext } from "./workflow.ts";

export interface ReadmissionPlan extends Plan {
  readonly id: string;
  readonly rooms: RoomsChoice;
  readonly touched: readonly TouchedRoom[];
}

/** @throws DrawbridgeError `usage`, `head_refused`; RegistryError when a step's result would be refused */
export async function planReadmission(
  context: WorkflowContext,
  named: string,
  choice: RoomsChoice | undefined,
): Promise<ReadmissionPlan> {
  const { desired } = await goodState(context);
  const { partner } = findPartner(desired.registry, named);
  const { id, stages, rooms, touched } = requireReadmission(context.state, partner.serverName);
  const planned = await plan(context, READMISSION, named, (step) => {
    const stage = stages.find(({ plane }) => plane === step.plane);
    return stage?.proved_at != null ? "proved" : stage?.revision != null ? "committed" : "pending";
  });
  const isBefore = partner.planes.rooms === "closed";
  return {
    ...{ ...planned, id, rooms: choice ?? rooms ?? "new" },
    touched: isBefore ? await context.rooms.observe(desired, partner.serverName) : (touched ?? []),
  };
}
