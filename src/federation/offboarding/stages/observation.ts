// What was seen of one stage, before anybody judges it; and what judging it says.
import type { EvidenceItem } from "../../../records/format/evidence-item.ts";
import type { StageName } from "../../../records/format/stages.ts";
import type { PlaneName } from "../../plane-order.ts";
import type { Drift } from "../../planes/plane.ts";
import type { Partner } from "../../registry/partner.ts";

export interface LeftOpen {
  /** A room ID, a server name; an item's subject, or its probe. */
  readonly subject: string;
  readonly reason: string;
  readonly hint: string;
}

/** What the owners have written down about the data duties; or why it cannot be told. */
export type DutiesSeen =
  | { readonly known: true; readonly purgeWaived: boolean }
  | { readonly known: false; readonly found: string; readonly hint: string };

export interface Observation {
  readonly stage: StageName;
  /** Null for the data duties. */
  readonly plane: PlaneName | null;
  /** The counterparty's entry at the revision that was looked at; undefined when it is gone. */
  readonly partner: Partner | undefined;
  /** Which parts this deployment runs. */
  readonly runs: { readonly gateway: boolean; readonly bridge: boolean };
  /** The reconciler's last word on the plane. */
  readonly applied: { readonly outcome: string; readonly reason: string | null } | null;
  /** What was changed by hand; only where it was looked for. */
  readonly drift: readonly Drift[];
  readonly items: readonly EvidenceItem[];
  readonly outOfReach: readonly LeftOpen[];
  /** Whether somebody looked as the counterparty. */
  readonly fromOutside: boolean;
  /** The policy before the run, and whether that one kept the counterparty out already. */
  readonly policyBefore: { readonly digest: string | null; readonly excluded: boolean };
  /** When the homeserver that ran as the stage was opened was started; null where nobody knows. */
  readonly startedBefore: string | null;
  /** Of the data duties alone. */
  readonly duties: DutiesSeen | undefined;
  /** Problems of the static tests; undefined where they are not asked for. */
  readonly staticProblems: readonly string[] | undefined;
}

/** One exit condition, judged. */
export interface Judged {
  readonly condition: string;
  readonly verdict: "met" | "not_met" | "unknown" | "not_applicable";
  /** Digests of the items that show it. */
  readonly evidence: readonly string[];
  /** What was tried last, or would have to be. */
  readonly probe: string;
  /** What it got. */
  readonly found: string;
  /** What to do; empty when nothing is. */
  readonly hint: string;
}

/** What shows one exit condition. */
export interface Rule {
  readonly condition: string;
  /** Probes whose items speak of it: none may say open. */
  readonly probes: readonly string[];
  /** Of those, the ones that must be seen closed at least once. */
  readonly needs: readonly string[];
  readonly hint: string;
  /** It does not apply: the probe whose item shows that. */
  readonly shownAbsentBy?: string;
  /** Items that say open and lawfully may. */
  readonly excused?: (item: EvidenceItem) => boolean;
  /** What is wrong although every probe is as it should be. */
  readonly objection?: {
    readonly verdict: "not_met" | "unknown";
    readonly found: string;
    readonly hint: string;
  };
  /** Items that cannot say anything are passed over. */
  readonly ignoresUnclear?: boolean;
  /** Left out where nothing can be said and nothing need be. */
  readonly optional?: boolean;
}

// Probes whose items the walk itself states, from what is declared and written down rather than from an answer.

/** What the reconciler has reached on a plane. */
export const RECONCILED = "reconciled";
/** Where an organisation has no such part. */
export const NOTHING_THERE = "nothing_declared";
/** Where the bridge carries none of the counterparty's agents. */
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
/** Why a room of a third party is out of reach: nobody here may close it. */
export const NOT_OUR_ROOM = "not_our_room";
