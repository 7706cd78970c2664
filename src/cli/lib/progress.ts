// How the commands of federation control report progress: events of the reconciler and notes of the planes, as lines
// on standard error.
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

/** Writes `a, b and c`. */
const LIST = new Intl.ListFormat("en-GB");

/** How long a workflow stands still before it says what it waits for. */
const SILENT_WAIT_MS = 3_000;

export interface WorkflowReporter extends Reporter {
  /** The workflow has reported how a plane ended. */
  planeReported(): void;
  /** Which planes were waited for, once the workflow is over; undefined when none was. */
  waits(): string | undefined;
}

/**
 * For a workflow that reports the end of each plane itself: reports only what hinders it, and the notes of the rooms
 * plane, which alone takes long. A lock of another process is reported at the end, or when the workflow stands still.
 */
export function workflowReporter(): WorkflowReporter {
  const waited = new Set<string>();
  let late: NodeJS.Timeout | undefined;
  return {
    event: (event) => {
      if (event.event === "plane_waits") {
        waited.add(planeWords(event.plane));
        clearTimeout(late);
        late = setTimeout(() => progressReporter.event(event), SILENT_WAIT_MS).unref();
        return;
      }
      if (event.event === "head_accepted" || event.event === "plane_begun") return;
      if (event.event !== "plane_ended" || event.hint !== null) progressReporter.event(event);
    },
    note: (plane, text) => {
      if (plane === "rooms") progressReporter.note(plane, text);
    },
    planeReported: () => clearTimeout(late),
    waits: () => {
      if (waited.size === 0) return undefined;
      return `Another process, such as the reconciler, was at work on ${LIST.format(waited)}; that was waited for, and hinders nothing.`;
    },
  };
}

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
      return `${planeWords(event.plane)}: another process is at work on it already; waiting`;
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
