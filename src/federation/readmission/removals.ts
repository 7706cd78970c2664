// What removals of the same partner mean for its re-admission. Invariants: no plane is opened while a removal is
// walked; a removal that was begun after a re-admission was opened ends that, with its gate and its identities.
import { STAGE_NAMES } from "../../records/format/stages.ts";
import { refuse } from "../agents/guards.ts";
import { openRunWith, runsWith } from "../offboarding/run/run.ts";
import { readStage } from "../offboarding/run/stage-record.ts";
import { PLANE_NAMES } from "../planes/names.ts";
import type { PartnerEntry } from "../registry/partner.ts";
import type { StateFolder } from "../state/folder.ts";
import type { Readmission } from "./readmission.ts";

/** @throws DrawbridgeError `guard_refused` while a removal of the partner has not ended */
export function refuseWhileRemoving(state: StateFolder, { name, partner }: PartnerEntry): void {
  const run = openRunWith(state, partner.serverName);
  if (run !== undefined) throw refuse("removal_open", `the removal ${run.run} of ${name} has not ended`);
}

/** Whether every plane is declared closed. */
export function isRemoved({ planes }: PartnerEntry["partner"]): boolean {
  return PLANE_NAMES.every((plane) => planes[plane] === "closed");
}

/** Whether the partner is out again by a removal that was begun since. */
export function isOvertaken(
  state: StateFolder,
  { openedAt }: Readmission,
  { partner }: PartnerEntry,
): boolean {
  return (
    isRemoved(partner) &&
    runsWith(state, partner.serverName).some(
      (run) => run.openedAt > openedAt && STAGE_NAMES.some((stage) => readStage(run, stage) !== undefined),
    )
  );
}
