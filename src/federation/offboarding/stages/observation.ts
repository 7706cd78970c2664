// What was observed of one stage, and how it is judged: by the evaluation that the record will be verified by. Pure.
import { evaluateStage, type StageWork } from "../../../records/conditions/stage.ts";
import type { PlaneName } from "../../plane-order.ts";
import type { OutOfReach } from "../../planes/plane.ts";
import {
  type JudgedCondition,
  judgeConditions,
  type Objection,
  objectTo,
  type Seen,
} from "../../workflow/step-verdict.ts";

export interface Observation extends Seen {
  /** What the conditions are evaluated with; `closed_at` is when the observation ended. */
  readonly work: StageWork;
  /** Null for the data duties. */
  readonly plane: PlaneName | null;
  /** By room ID or server name; or by an item's subject, or its probe. */
  readonly outOfReach: readonly Omit<OutOfReach, "partner">[];
  readonly objections: readonly Objection[];
}

/** Why a room of a third party is out of reach: this organisation may not close it. */
export const NOT_OUR_ROOM = "not_our_room";

export function judgeStage(observation: Observation): readonly JudgedCondition[] {
  const { work, items, objections } = observation;
  return objectTo(judgeConditions(evaluateStage(work, items), observation), objections);
}
