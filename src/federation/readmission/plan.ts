// What each step that is left would change: worked out on the registry as it is, without changing anything.
import { changeBase } from "../change/base.ts";
import { type Change, workOut } from "../change/commit-change.ts";
import { setPlane } from "../change/edit-partner.ts";
import { PLANE_NUMBERS, type PlaneName } from "../plane-order.ts";
import { renderAll } from "../planes/render.ts";
import { currentState } from "../reconcile/accept-head.ts";
import { findPartner } from "../registry/find-partner.ts";
import { requireReadmission, type TouchedRoom } from "./readmission.ts";
import type { RoomsChoice } from "./readmission-record.ts";
import type { WorkflowContext } from "./workflow.ts";

export interface FileDifference {
  readonly path: string;
  /** Lines that go and lines that come, in their order; moved lines are neither. */
  readonly removed: readonly string[];
  readonly added: readonly string[];
}

export interface PlannedStep {
  readonly plane: PlaneName;
  readonly number: number;
  readonly state: "proved" | "committed" | "pending";
  readonly interrupts: string;
  readonly files: readonly FileDifference[];
}

export interface ReadmissionPlan {
  readonly partner: string;
  readonly id: string;
  readonly steps: readonly PlannedStep[];
  readonly rooms: RoomsChoice;
  readonly touched: readonly TouchedRoom[];
}

const INTERRUPTS: Readonly<Record<PlaneName, string>> = {
  transport: "the homeserver restarts once: nobody loses an event, sending waits some seconds",
  rooms: "nothing restarts; kept rooms that are replaced end for their people, who are moved",
  border: "nothing restarts; the policy applies from the next event on",
  card: "nothing restarts; the bridge checks the partner's cards again",
  gateway: "nothing restarts; the gateway reloads its routes",
};

/** @throws DrawbridgeError `usage`, `head_refused`; RegistryError when a step's result would be refused */
export async function planReadmission(
  context: WorkflowContext,
  named: string,
  choice: RoomsChoice | undefined,
): Promise<ReadmissionPlan> {
  const base = await changeBase(context);
  const { file, partner } = findPartner(base.registry, named);
  const readmission = requireReadmission(context.state, partner.serverName);
  const steps: PlannedStep[] = [];
  let text = await base.textOf(file);
  let rendered = renderAll(base.registry);
  for (const { plane, revision, proved_at: provedAt } of readmission.stages) {
    let files: readonly FileDifference[] = [];
    if (partner.planes[plane] === "closed") {
      text = setPlane(text, plane, "open");
      const change: Change = await workOut(context, base, new Map([[file, text]]));
      const after = renderAll(change.after);
      files = differences(rendered, after);
      rendered = after;
    }
    const state = provedAt !== null ? "proved" : revision === null ? "pending" : "committed";
    steps.push({ plane, number: PLANE_NUMBERS[plane], state, interrupts: INTERRUPTS[plane], files });
  }
  const isBefore = partner.planes.rooms === "closed";
  const { desired } = await currentState(context);
  const touched = isBefore
    ? await context.rooms.observe(desired, partner.serverName)
    : (readmission.touched ?? []);
  const rooms = choice ?? readmission.rooms ?? "new";
  return { partner: partner.serverName, id: readmission.id, steps, rooms, touched };
}

function differences(
  before: ReadonlyMap<string, string>,
  after: ReadonlyMap<string, string>,
): readonly FileDifference[] {
  return [...new Set([...before.keys(), ...after.keys()])].sort().flatMap((path) => {
    const [old, now] = [linesOf(before.get(path)), linesOf(after.get(path))];
    if (before.get(path) === after.get(path)) return [];
    return [{ path, removed: without(old, now), added: without(now, old) }];
  });
}

function linesOf(text: string | undefined): readonly string[] {
  return text === undefined ? [] : text.split("\n").filter((line) => line !== "");
}

/** The lines that the other text does not have as often. */
function without(lines: readonly string[], others: readonly string[]): readonly string[] {
  const left = new Map<string, number>();
  for (const line of others) left.set(line, (left.get(line) ?? 0) + 1);
  return lines.filter((line) => {
    const count = left.get(line) ?? 0;
    left.set(line, count - 1);
    return count <= 0;
  });
}
