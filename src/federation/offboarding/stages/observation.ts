// What was observed of one stage, before it is judged, and the names of the probes whose items this organisation states
// itself, from what is declared and written down rather than from an answer.
import type { StageWork } from "../../../records/conditions/stage.ts";
import type { EvidenceItem } from "../../../records/format/evidence-item.ts";
import type { PlaneName } from "../../plane-order.ts";
import type { OutOfReach } from "../../planes/plane.ts";

/** A condition that does not hold whatever the evidence says. */
export interface Objection {
  readonly condition: string;
  readonly probe: string;
  readonly found: string;
  readonly hint: string;
}

export interface Observation {
  /** What the conditions are evaluated with; `closed_at` is when the observation ended. */
  readonly work: StageWork;
  /** Null for the data duties. */
  readonly plane: PlaneName | null;
  readonly items: readonly EvidenceItem[];
  /** By room ID or server name; or by an item's subject, or its probe. */
  readonly outOfReach: readonly Omit<OutOfReach, "partner">[];
  /** Whether the organisation was probed as the counterparty. */
  readonly fromOutside: boolean;
  readonly objections: readonly Objection[];
}

/** The organisation lets the counterparty invoke no agent. */
export const AGENTS_OFFERED = "agents_offered";
/** The bridge carries none of the counterparty's agents. */
export const AGENTS_CONSUMED = "agents_consumed";
/** There is no room that the counterparty is in, or may enter. */
export const ROOMS_SHARED = "rooms_shared";
/** A room that was in scope as the stage was opened, and of which nothing is found now. */
export const ROOM_OBSERVED = "room_observed";
/** What the reconciler has reached on a plane. */
export const RECONCILED = "reconciled";
/** The rendered files of a plane. */
export const RENDER = "render";
/** A card that stays public for others: the counterparty's use of it was refused in stage 1. */
export const CARD_USE = "card_use";
/** A line of the border's violations. */
export const VIOLATION = "violation";
/** A purge that was waived. */
export const PURGE_WAIVED = "purge_waived";
/** The private record's duties. */
export const DUTIES = "duties";
/** The tests that need no server. */
export const STATIC_TESTS = "check_federation";
/** Why a room of a third party is out of reach: this organisation may not close it. */
export const NOT_OUR_ROOM = "not_our_room";
