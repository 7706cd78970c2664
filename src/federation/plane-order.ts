// The five planes that admit a partner, and the orders in which they are closed and opened.
// Invariants: closing goes from what stops a partner fastest to what cannot be taken back quickly; the transport is
// closed last, because a ban that is made after it never arrives. The reconciler opens in reverse; a removal's order is
// that of its stages (removal-stages.ts); the steps are in workflow/procedures.ts.
import {
  PLANE_NAMES,
  PLANE_OF_STAGE,
  type PlaneName,
  STAGE_NAMES,
} from "../records/format/removal-stages.ts";

/** The names are those of records, which are verified years after. */
export { PLANE_NAMES, type PlaneName } from "../records/format/removal-stages.ts";

/** As people number them in records, runbooks and on the telephone. */
export const PLANE_NUMBERS: Readonly<Record<PlaneName, 1 | 2 | 3 | 4 | 5>> = {
  transport: 1,
  rooms: 2,
  border: 3,
  card: 4,
  gateway: 5,
};

export const planeLabel = (plane: PlaneName): string => `${PLANE_NUMBERS[plane]} ${plane}`;

/** All five, in the order of a removal's stages: planes 5, 4, 2, 3, 1. */
export const CLOSING_ORDER: readonly PlaneName[] = STAGE_NAMES.flatMap(
  (stage) => PLANE_OF_STAGE[stage] ?? [],
);
export const OPENING_ORDER: readonly PlaneName[] = [...CLOSING_ORDER].reverse();

/** The planes that containment closes without a restart, in its safe order: 5, 4, 2, 3. */
export const CONTAINMENT_ORDER: readonly PlaneName[] = CLOSING_ORDER.filter((plane) => plane !== "transport");

/** A re-admission opens the planes in the order of their numbers. */
export const READMISSION_ORDER: readonly PlaneName[] = PLANE_NAMES;
