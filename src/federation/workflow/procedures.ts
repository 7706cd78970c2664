// The procedures of federation control, as data: the steps of each, and in how many commits. Which planes each closes or opens,
// and in which order, is in plane-order.ts; the order of a removal is that of its stages (records/format/removal-stages.ts).
// Running one is always the same: plan → commit → reconcile → observe → evaluate → record.
// Invariants: where a head is refused, only containment and an emergency work around it; whether a step is done follows
// from files and git, and is never stored beside them.
import type { Direction } from "../../records/conditions/condition.ts";
import {
  type Kind,
  PLANE_OF_STAGE,
  STAGE_NAMES,
  STAGES_LEFT_ALONE,
  type StageName,
} from "../../records/format/removal-stages.ts";
import { CONTAINMENT_ORDER, PLANE_NUMBERS, type PlaneName, READMISSION_ORDER } from "../plane-order.ts";
import type { OnBadHead } from "../reconcile/accept-head.ts";
import type { Objection } from "./run-step.ts";

export interface Step {
  readonly name: string;
  readonly plane: PlaneName | null;
  readonly direction: Direction;
  /** What its commit edits of the partner's entry: the flag; its plane; with `retire` every pinned identity as well. */
  readonly edit: "contained" | "plane" | "retire" | null;
  /** What shows that it is done: the plane's conditions, those of one agent, or only that it is in force; null for a plane that is left alone. */
  readonly conditions: "partner" | "agent" | "in_force" | null;
  /** What a person decides in it: the fate of kept rooms, or what is purged; null where nobody is asked. */
  readonly approval: "rooms" | "purge" | null;
}

export type PlaneStep = Step & { readonly plane: PlaneName };

export interface Procedure {
  readonly name: string;
  /** Whether one commit changes everything, or each step its own plane. */
  readonly commits: "one" | "each";
  readonly onBadHead: OnBadHead;
  readonly steps: readonly Step[];
}

function steps(
  direction: Direction,
  planes: readonly PlaneName[],
  [edit, conditions]: readonly [Step["edit"], Step["conditions"]],
): readonly [PlaneStep, ...PlaneStep[]] {
  const all = planes.map((plane): PlaneStep => {
    const approval = plane === "rooms" && edit === "plane" ? "rooms" : null;
    return { name: plane, plane, direction, edit, conditions, approval };
  });
  return all as [PlaneStep, ...PlaneStep[]];
}

/** Planes 5, 4, 2 and 3 at once. It does not wait until somebody has repaired the branch. */
export const CONTAIN = {
  ...{ name: "contain", commits: "one", onBadHead: "workaround" },
  steps: steps("closed", CONTAINMENT_ORDER, ["contained", "partner"]),
} as const satisfies Procedure;

export const RESTORE = {
  ...{ name: "restore", commits: "one", onBadHead: "refuse" },
  steps: steps("open", [...CONTAINMENT_ORDER].reverse(), ["contained", "partner"]),
} as const satisfies Procedure;

const RETIRING: StageName = "transport";

/** Six stages, each signed by both. An emergency begins with `CONTAIN`; a partial removal leaves planes 1 to 3 alone. */
export const removal = (kind: Kind): Procedure => ({
  ...{ name: kind, commits: "each", onBadHead: kind === "emergency" ? "workaround" : "refuse" },
  steps: STAGE_NAMES.map((stage) => removalStep(kind, stage)),
});

export function removalStep(kind: Kind, name: StageName): Step {
  const plane = PLANE_OF_STAGE[name];
  const isLeftAlone = STAGES_LEFT_ALONE[kind].includes(name);
  return {
    ...{ name, plane, direction: "closed", conditions: isLeftAlone ? null : "partner" },
    edit: plane === null || isLeftAlone ? null : name === RETIRING ? "retire" : "plane",
    approval: plane === null ? "purge" : null,
  };
}

/** Planes 1 to 5, each observed open before the next, after a commit that retires what was pinned. */
export const READMISSION = {
  ...{ name: "re-admission", commits: "each", onBadHead: "refuse" },
  steps: steps("open", READMISSION_ORDER, ["plane", "partner"]),
} as const satisfies Procedure;

function ofAgent(name: string, direction: Direction, plane: PlaneName, more: readonly PlaneStep[] = []) {
  const all = [...steps(direction, [plane], [null, "agent"]), ...more];
  return { name, commits: "one", onBadHead: "refuse", steps: all } as const satisfies Procedure;
}

export const ROTATE = ofAgent("rotate", "open", "card");
export const PIN = ofAgent("pin", "open", "card");
export const WITHDRAW_PINNED = ofAgent("withdraw", "closed", "card");
/** An agent of ours is no more for one partner; whether its card stays depends on the others. */
export const WITHDRAW_OFFERED = ofAgent(
  ...(["withdraw", "closed", "gateway"] as const),
  steps("closed", ["card"], [null, "in_force"]),
);

export type Block = Objection & { readonly plane: PlaneName | null };

/** `since`: ISO 8601, UTC; null where that is not known. */
type Since = { readonly state: string; readonly since: string | null };

export interface StepStatus {
  readonly step: string;
  readonly plane: PlaneName | null;
  readonly planeNumber: number | null;
  readonly own: Since;
  readonly other: Since | null;
  readonly commit: string | null;
  readonly openedAt: string | null;
  readonly provedAt: string | null;
  readonly blocks: readonly Block[];
}

export const labelOf = ({ name, plane }: Pick<Step, "name" | "plane">) =>
  ({ step: name, plane, planeNumber: plane === null ? null : PLANE_NUMBERS[plane] }) as const;
