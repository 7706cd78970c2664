// Where a procedure stands, as an operator and a script read it: every step, since when, and what is in its way.
// Invariant: it follows from files and git alone, and is stored nowhere.
import { PLANE_NUMBERS, type PlaneName } from "../plane-order.ts";
import type { Step } from "./procedure.ts";

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
