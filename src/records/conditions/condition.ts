// What a condition of a plane is, what it has to be shown for, and the circumstances in which it is evaluated.
import { isDigest } from "../../domain/digest.ts";
import { type EvidenceItem, isOwnRoom, startedAtOf, type Vantage } from "../format/evidence-item.ts";
import type { Part, Scope } from "../format/fields.ts";
import type { PlaneName } from "../format/removal-stages.ts";

/** `closed`: the partner is kept out; `open`: it is let in. */
export type Direction = "closed" | "open";

/** An answer that counts; where `reasons` is absent, any reason does. */
export interface Answer {
  readonly verdict: EvidenceItem["verdict"];
  readonly layers: readonly string[];
  readonly statuses: readonly (number | null)[];
  readonly reasons?: readonly (string | null)[];
}

/** A probe from one vantage with an answer that shows the condition for the item's subject. */
export interface Observation {
  readonly probe: string;
  readonly vantage: Vantage;
  readonly answers: readonly Answer[];
  readonly checks?: readonly Check[];
  /** Counts only together with this, about the same subject; then other answers about the subject do not object. */
  readonly with?: Observation;
}

export interface Requirement {
  readonly subjects: Subjects;
  readonly anyOf: readonly Observation[];
  /** Must agree where it was observed, and need not be observed. */
  readonly optional?: true;
  /** Of an optional requirement: an attempt without an answer counts neither way. */
  readonly ignoresUnknown?: true;
  /** A subject that is unknown may be listed as out of reach, and waived by name. */
  readonly waivable?: true;
  /** Only an attempt of the partner's shows it: what the organisation's own parts say is not enough. */
  readonly byAttempt?: true;
}

export interface Condition {
  readonly name: string;
  /** One of these must be managed. */
  readonly parts: readonly Part[];
  readonly requirements: readonly Requirement[];
  /** Shows that there are no subjects; or, as a waiver does, takes the place of requirements that have some (`instead`). */
  readonly absence?: { readonly observation: Observation; readonly instead?: true };
  /** Need not be observed at all; where it is, it must hold. */
  readonly optional?: true;
}

export type Verdict = "met" | "not_met" | "unknown" | "not_applicable" | "unmanaged";

export type Lack = Pick<EvidenceItem, "probe" | "vantage" | "subject"> & {
  item?: EvidenceItem | undefined;
};

export interface Circumstances {
  /** Server names: whose planes these are, and whom they keep out or let in. */
  readonly organisation: string;
  readonly partner: string;
  /** Null for the data duties, which are about every plane. */
  readonly plane: PlaneName | null;
  readonly scope: Scope;
  /** Items from before or after count for nothing (ISO 8601, UTC); null where there is no such bound. */
  readonly from: string | null;
  readonly until: string | null;
  /** What is declared, as `reconciled` and `render` name it; null where there is nothing. */
  readonly revision: string | null;
  readonly render: string | null;
  readonly outOfReach: ReadonlySet<string>;
  /** Fingerprint of the key pinned for each of `pins`; needed where a condition has the check `current_pin`. */
  readonly fingerprints?: ReadonlyMap<string, string>;
}

/** Of a requirement of which one item is enough, whatever it is about. */
export const ANY = Symbol("any subject");
export type CoveredSubject = string | null | typeof ANY;

type SubjectsOf = (circumstances: Circumstances, items: readonly EvidenceItem[]) => Iterable<CoveredSubject>;

export const SUBJECTS = {
  none: () => [null],
  any: () => [ANY],
  self: ({ organisation }) => [organisation],
  partner: ({ partner }) => [partner],
  clients: ({ scope }) => [scope.client, ...scope.applicants],
  caller: ({ scope }) => (scope.agents.length === 0 ? [] : [scope.client]),
  agents: ({ scope }) => scope.agents,
  pins: ({ scope }) => scope.pins,
  // Rooms of the scope alone: those that were kept and are to be open again.
  kept: ({ scope }) => scope.rooms ?? [],
  // A room that the operator has found since must be covered too.
  rooms: ({ scope }, items) => [...(scope.rooms ?? []), ...items.filter(isOwnRoom).map((one) => one.subject)],
} satisfies Readonly<Record<string, SubjectsOf>>;
export type Subjects = keyof typeof SUBJECTS;

export const CHECKS = {
  names_revision: ({ references }, { revision, render }) =>
    revision !== null && render !== null && references.includes(revision) && references.includes(render),
  nobody_present: ({ references }) => references.includes("present=0"),
  another_policy: ({ references }, { scope: { policy } }) => {
    const named = references.find(isDigest);
    return named !== undefined && named !== policy;
  },
  same_process: (item, { scope: { started_at: before } }) => before === null || startedAtOf(item) === before,
  current_pin: ({ subject, references }, { fingerprints }) => {
    const pinned = fingerprints?.get(subject ?? "");
    return pinned !== undefined && references.includes(pinned);
  },
} satisfies Readonly<Record<string, (item: EvidenceItem, circumstances: Circumstances) => boolean>>;
export type Check = keyof typeof CHECKS;
