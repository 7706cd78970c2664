// The procedures of federation control, as data: which planes each closes or opens, in which order, and in how many
// commits. Running one is always the same: plan → commit → reconcile → observe → evaluate → record,
// and for a removal sign → exchange → countersign.
// Invariants: an order is one of plane-order.ts; where a head is refused, only an emergency works around it; whether a
// step is done follows from files and git, and is never stored beside them; nor is its status, which every step has.
import type { Direction } from "../../records/conditions/condition.ts";
import {
  type Kind,
  PLANE_OF_STAGE,
  STAGE_NAMES,
  STAGES_LEFT_ALONE,
  type StageName,
} from "../../records/format/stages.ts";
import type { OnBadHead } from "../change/commit-base.ts";
import { CONTAINMENT_ORDER, PLANE_NAMES, PLANE_NUMBERS, type PlaneName } from "../plane-order.ts";

export interface Step {
  /** As plans and the status name it: a plane, or a stage of a removal. */
  readonly name: string;
  /** Null for the data duties. */
  readonly plane: PlaneName | null;
  readonly direction: Direction;
  /** Nothing is edited in this step: the plane stays as it is. */
  readonly isLeftAlone?: true;
  /** Its commit retires every identity that the partner's entry pins, so that only a re-admission opens a plane again. */
  readonly retires?: true;
}

export interface Procedure {
  readonly name: string;
  /** Whether one commit changes everything, or each step its own plane. */
  readonly commits: "one" | "each";
  /** What it edits: the partner's flag, its planes, or the identity of one agent. */
  readonly edits: "contained" | "planes" | "identity";
  readonly onBadHead: OnBadHead;
  readonly steps: readonly Step[];
}

function steps(direction: Direction, planes: readonly PlaneName[]): readonly Step[] {
  return planes.map((plane) => ({ name: plane, plane, direction }));
}

/** Planes 5, 4, 2 and 3 at once. It does not wait until somebody has repaired the branch. */
export const CONTAIN = {
  ...{ name: "contain", commits: "one", edits: "contained", onBadHead: "workaround" },
  steps: steps("closed", CONTAINMENT_ORDER),
} as const satisfies Procedure;

/** The reverse. */
export const RESTORE = {
  ...{ name: "restore", commits: "one", edits: "contained", onBadHead: "refuse" },
  steps: steps("open", [...CONTAINMENT_ORDER].reverse()),
} as const satisfies Procedure;

/** The last stage that closes a plane. */
const RETIRING: StageName = "transport";

/** Six stages, each signed by both. An emergency begins with `CONTAIN`; a partial removal leaves planes 1 to 3 alone. */
export function removal(kind: Kind): Procedure & { readonly steps: readonly (Step & { name: StageName })[] } {
  return {
    ...{ name: kind, commits: "each", edits: "planes" },
    onBadHead: kind === "emergency" ? "workaround" : "refuse",
    steps: STAGE_NAMES.map((name) => ({
      ...{ name, plane: PLANE_OF_STAGE[name], direction: "closed" },
      ...(STAGES_LEFT_ALONE[kind].includes(name)
        ? { isLeftAlone: true as const }
        : name === RETIRING && { retires: true as const }),
    })),
  };
}

/** Planes 1 to 5, each observed open before the next, after a commit that retires what was pinned. */
export const READMISSION = {
  ...{ name: "re-admission", commits: "each", edits: "planes", onBadHead: "refuse" },
  steps: steps("open", PLANE_NAMES),
} as const satisfies Procedure;

function ofAgent(name: string, direction: Direction, planes: readonly PlaneName[]): Procedure {
  return {
    ...{ name, commits: "one", edits: "identity", onBadHead: "refuse" },
    steps: steps(direction, planes),
  };
}

/** Our own agent gets a new key. */
export const ROTATE = ofAgent("rotate", "open", ["card"]);
/** A partner's agent is pinned to its new key. */
export const PIN = ofAgent("pin", "open", ["card"]);
/** An agent that our bridge carries is given up. */
export const WITHDRAW_PINNED = ofAgent("withdraw", "closed", ["card"]);
/** An agent of ours is no more for one partner. */
export const WITHDRAW_OFFERED = ofAgent("withdraw", "closed", ["gateway", "card"]);

export function planesOf({ steps: all }: Procedure): readonly PlaneName[] {
  return all.flatMap(({ plane }) => plane ?? []);
}

/** What keeps a step from being done: what was tried, what was found and what to do. */
export interface Block {
  readonly plane: PlaneName | null;
  readonly condition: string;
  readonly probe: string;
  readonly found: string;
  readonly hint: string;
}

export interface Since<State extends string = string> {
  readonly state: State;
  /** ISO 8601, UTC; null where that is not known. */
  readonly since: string | null;
}

export interface StepStatus<Own extends string = string, Other extends string = string> {
  /** A plane, or a stage of a removal. */
  readonly step: string;
  readonly plane: PlaneName | null;
  readonly planeNumber: number | null;
  readonly own: Since<Own>;
  /** What is known of the other organisation's part; null where it has none. */
  readonly other: Since<Other> | null;
  /** The commit that changes the plane; null before it is made. */
  readonly commit: string | null;
  readonly openedAt: string | null;
  /** When it was last observed to be as it should be; null before. */
  readonly provedAt: string | null;
  readonly blocks: readonly Block[];
}

/** The parts of a step's status that follow from its declaration. */
export function labelOf({ name, plane }: Pick<Step, "name" | "plane">) {
  return { step: name, plane, planeNumber: plane === null ? null : PLANE_NUMBERS[plane] } as const;
}
