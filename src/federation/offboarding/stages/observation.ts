// What was observed of one stage, before anybody judges it, and the rules by which it is judged.
import type { EvidenceItem } from "../../../records/format/evidence-item.ts";
import type { StageName } from "../../../records/format/stages.ts";
import type { PlaneName } from "../../plane-order.ts";
import type { Drift, OutOfReach } from "../../planes/plane.ts";
import type { Partner } from "../../registry/partner.ts";

/** What the owners have written down about the data duties; or why it cannot be read. */
export type DutiesReport =
  | { readonly known: true; readonly purgeWaived: boolean }
  | { readonly known: false; readonly found: string; readonly hint: string };

export interface Observation {
  readonly stage: StageName;
  /** Null for the data duties. */
  readonly plane: PlaneName | null;
  /** The counterparty's entry at the revision that was observed; undefined when it is gone. */
  readonly partner: Partner | undefined;
  /** Which parts this deployment runs. */
  readonly runs: { readonly gateway: boolean; readonly bridge: boolean };
  /** The reconciler's last outcome on the plane. */
  readonly applied: { readonly outcome: string; readonly reason: string | null } | null;
  /** What was changed by hand; empty where drift was not looked for. */
  readonly drift: readonly Drift[];
  readonly items: readonly EvidenceItem[];
  /** By room ID or server name; or by an item's subject, or its probe. */
  readonly outOfReach: readonly Omit<OutOfReach, "partner">[];
  /** Whether the organisation was probed as the counterparty. */
  readonly fromOutside: boolean;
  /** The policy before the run, and whether that one kept the counterparty out already. */
  readonly policyBefore: { readonly digest: string | null; readonly excluded: boolean };
  /** When the homeserver that ran as the stage was opened was started; null where that is not known. */
  readonly startedBefore: string | null;
  /** Of the data duties alone. */
  readonly duties: DutiesReport | undefined;
  /** Problems of the static tests; undefined where the stage asks for none. */
  readonly staticProblems: readonly string[] | undefined;
}

/** An observation with nothing in it. */
export const NOTHING_OBSERVED: Omit<Observation, "stage" | "plane" | "items"> = {
  partner: undefined,
  runs: { gateway: false, bridge: false },
  applied: null,
  drift: [],
  outOfReach: [],
  fromOutside: false,
  policyBefore: { digest: null, excluded: false },
  startedBefore: null,
  duties: undefined,
  staticProblems: undefined,
};

/** What shows one exit condition. */
export interface Rule {
  readonly condition: string;
  /** Probes whose items are about it: none may say open. */
  readonly probes: readonly string[];
  /** Of those, the ones that must be observed closed at least once. */
  readonly needs: readonly string[];
  readonly hint: string;
  /** It does not apply: the probe whose item shows that. */
  readonly shownAbsentBy?: string;
  /** Items that say open and lawfully may. */
  readonly excused?: (item: EvidenceItem) => boolean;
  /** What is wrong although every probe is as it should be. */
  readonly objection?: { readonly found: string; readonly hint: string };
  /** Items that say unknown count neither for it nor against it. */
  readonly ignoresUnclear?: boolean;
  /** Left out where no item is about it. */
  readonly optional?: boolean;
}

// Probes whose items this organisation states itself, from what is declared and written down rather than from an answer.

/** What the reconciler has reached on a plane. */
export const RECONCILED = "reconciled";
/** The organisation has no such part. */
export const NOTHING_THERE = "nothing_declared";
/** The bridge carries none of the counterparty's agents. */
export const NO_PINS = "no_pins_declared";
/** A plane that this kind of removal leaves alone. */
export const LEFT_ALONE = "left_alone";
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
