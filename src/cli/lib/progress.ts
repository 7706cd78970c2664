import { printableLine } from "../../domain/printable.ts";
import { PLANE_NUMBERS, type PlaneName } from "../../federation/plane-order.ts";
import type { ReconcileEvent, Reporter } from "../../federation/reconcile/context.ts";
import { say, short } from "./output.ts";

/** A plane in a running text, where a bare `2 rooms` would be taken for a count: `plane 2 (rooms)`. */
export function planeWords(plane: PlaneName): string {
  return `plane ${PLANE_NUMBERS[plane]} (${plane})`;
}

export const progressReporter: Reporter = {
  event: (event) => {
    const text = textOf(event);
    if (text !== undefined) say(text);
  },
  note: (plane, text) => say(`  ${planeWords(plane)}: ${text}`),
};

/** For a workflow that reports the end of each plane itself: what hinders it, and the notes of the slow rooms plane. */
export const workflowReporter: Reporter = {
  event: (event) => {
    if (event.event === "head_accepted" || event.event === "plane_begun") return;
    if (event.event !== "plane_ended" || event.hint !== null) progressReporter.event(event);
  },
  note: (plane, text) => {
    if (plane === "rooms") progressReporter.note(plane, text);
  },
};

function textOf(event: ReconcileEvent): string | undefined {
  switch (event.event) {
    case "head_accepted":
      return `revision ${short(event.revision)} is accepted${event.order === null ? "" : `, in ${event.order} order`}`;
    case "head_refused":
      return [
        `REFUSED: ${event.detail} [${event.reason}]`,
        event.inForce === null
          ? "no revision was ever accepted"
          : `revision ${short(event.inForce)} stays in force`,
        `hint: ${event.hint}`,
      ].join("\n");
    case "plane_begun":
      return `${planeWords(event.plane)}: applying ${short(event.revision)}`;
    case "plane_ended": {
      const reason = event.reason === null ? "" : ` (${event.reason})`;
      const hint = event.hint === null ? "" : `\n  hint: ${event.hint}`;
      const left = event.outOfReach
        .map((one) => `\n  not reached: ${printableLine(one.subject)} (${one.reason})`)
        .join("");
      return `${planeWords(event.plane)}: ${event.outcome}${reason} after ${event.durationMs} ms${hint}${left}`;
    }
    case "plane_waits":
      return `${planeWords(event.plane)}: another process is at work on it; waiting`;
    case "drift": {
      const kept = event.record.kept === null ? "" : `; its text is kept in ${event.record.kept}`;
      return `DRIFT: ${planeWords(event.record.plane)}: ${printableLine(event.record.subject)} was ${event.record.kind}${kept}`;
    }
    case "drift_unknown":
      return `${planeWords(event.plane)}: cannot be checked for drift (${event.code})`;
    case "state_damaged":
      return `${event.file} is damaged; the plane is applied again`;
  }
}
