// What a condition of a plane is, how one is written down, and the circumstances in which it is evaluated.
import { type EvidenceItem, isOwnRoom, startedAtOf, type Vantage } from "../format/evidence-item.ts";
import type { Part, Scope } from "../format/fields.ts";
import type { PlaneName } from "../format/stages.ts";

/** `closed`: the partner is kept out; `open`: it is let in. */
export type Direction = "closed" | "open";
export type Extent = "partner" | "agent";

/** An answer that counts. A field that is absent here may hold anything, except that a status is null unless named. */
export interface Answer {
  readonly verdict: EvidenceItem["verdict"];
  readonly layers: readonly string[];
  readonly statuses?: readonly (number | null)[];
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

export interface Absence {
  readonly observation: Observation;
  /** Takes the place of the requirements although they have subjects, as a waiver does. */
  readonly instead?: true;
}

export interface Condition {
  readonly name: string;
  /** One of these must be managed. */
  readonly parts: readonly Part[];
  readonly requirements: readonly Requirement[];
  readonly absence?: Absence;
  /** Need not be observed at all; where it is, it must hold. */
  readonly optional?: true;
}

export type Verdict = "met" | "not_met" | "unknown" | "not_applicable" | "unmanaged";

export interface Lack {
  readonly probe: string;
  readonly vantage: Vantage;
  readonly subject: string | null;
  readonly item: EvidenceItem | undefined;
}

export interface Evaluated {
  readonly condition: string;
  readonly verdict: Verdict;
  readonly evidence: readonly string[];
  /** Those among them that show nothing: what they are about is out of reach, and to be waived by name. */
  readonly excused: readonly string[];
  /** Why it is not met: the first of them decides the verdict. Empty when it holds. */
  readonly lacks: readonly Lack[];
}

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

/** What a requirement has to be shown for. */
export const SUBJECTS = {
  // The item names no subject.
  none: () => [null],
  any: () => [ANY],
  self: ({ organisation }) => [organisation],
  partner: ({ partner }) => [partner],
  // The counterparty's client, and those with which it had applied.
  clients: ({ scope }) => [scope.client, ...scope.applicants],
  // The counterparty's client, where it may invoke any agent.
  caller: ({ scope }) => (scope.agents.length === 0 ? [] : [scope.client]),
  agents: ({ scope }) => scope.agents,
  pins: ({ scope }) => scope.pins,
  // Rooms of the scope alone: those that were kept and are to be open again.
  kept: ({ scope }) => scope.rooms ?? [],
  // A room that the operator has found since must be covered too.
  rooms: ({ scope }, items) => [...(scope.rooms ?? []), ...items.filter(isOwnRoom).map((one) => one.subject)],
} satisfies Readonly<Record<string, SubjectsOf>>;
type Subjects = keyof typeof SUBJECTS;

type CheckOf = (item: EvidenceItem, circumstances: Circumstances) => boolean;

export const CHECKS = {
  // Names the revision and the render that the stage states.
  names_revision: ({ references }, { revision, render }) =>
    revision !== null && render !== null && references.includes(revision) && references.includes(render),
  nobody_present: ({ references }) => references.includes("present=0"),
  // Names a border policy, and not the one that was in force before.
  another_policy: ({ references }, { scope: { policy } }) => {
    const named = references.find((one) => one.startsWith("sha256:"));
    return named !== undefined && named !== policy;
  },
  same_process: (item, { scope: { started_at: before } }) => before === null || startedAtOf(item) === before,
  current_pin: ({ subject, references }, { fingerprints }) => {
    const pinned = fingerprints?.get(subject ?? "");
    return pinned !== undefined && references.includes(pinned);
  },
} satisfies Readonly<Record<string, CheckOf>>;
export type Check = keyof typeof CHECKS;

/** One's own parts have no HTTP status unless one is named. */
export function answer(
  verdict: Direction,
  layers: readonly string[],
  reasons?: readonly (string | null)[],
  statuses: readonly (number | null)[] = [null],
): Answer {
  return { verdict, layers, statuses, ...(reasons !== undefined && { reasons }) };
}

export function byOperator(probe: string, answered: Answer): Observation {
  return { probe, vantage: "operator", answers: [answered] };
}

export function checked(observation: Observation, check: Check): Observation {
  return { ...observation, checks: [check] };
}

/** What the homeserver says of a room: any of these verdicts. */
export function ofRoom(probe: string, layer: string, ...verdicts: readonly Direction[]): Observation {
  const answers = verdicts.map((verdict) => answer(verdict, [layer], [null], [200]));
  return { probe, vantage: "operator", answers };
}

export function retained(...verdicts: readonly Direction[]): Observation {
  return { ...ofRoom("room_acl_at_retained", "room_acl", ...verdicts), vantage: "retained_server" };
}

export function closed(layer: string, reasons: Answer["reasons"], statuses?: Answer["statuses"]): Answer {
  return answer("closed", [layer], reasons, statuses);
}

/** One's own part says that it stops the partner. */
export function seen(probe: string, ...answered: Parameters<typeof closed>): Observation {
  return byOperator(probe, closed(...answered));
}

export function asPartner(probe: string, ...answers: readonly Answer[]): Observation {
  return { probe, vantage: "partner", answers };
}

export function condition(part: Part, name: string, ...requirements: readonly Requirement[]): Condition {
  return { name, parts: [part], requirements };
}
export const atHomeserver = condition.bind(undefined, "homeserver");
export const atBridge = condition.bind(undefined, "bridge");
export const atGateway = condition.bind(undefined, "gateway");

export function need(
  subjects: Subjects,
  observed: Observation | readonly Observation[],
  more: Partial<Requirement> = {},
): Requirement {
  return { subjects, anyOf: "probe" in observed ? [observed] : observed, ...more };
}

/** What only an attempt of the partner's shows. */
export function attempt(subjects: Subjects, probe: string, ...answers: readonly Answer[]): Requirement {
  return need(subjects, asPartner(probe, ...answers), { byAttempt: true });
}

/** What the partner may try besides: it need not, and an attempt without an answer counts neither way. */
export function tried(subjects: Subjects, probe: string, ...answers: readonly Answer[]): Requirement {
  return need(subjects, asPartner(probe, ...answers), { optional: true, ignoresUnknown: true });
}

/** The reconciler has reached the declared state; or, where that is waivable, it names what it has not reached. */
export function inForce(
  verdict: Direction,
  parts: readonly Part[],
  more: Partial<Requirement> = {},
): Condition {
  const reached = byOperator("reconciled", answer(verdict, ["reconciler"], ["in_force"]));
  return { name: "in_force", parts, requirements: [need("none", checked(reached, "names_revision"), more)] };
}

export const LEFT = byOperator(
  "room_left",
  answer("closed", ["homeserver"], ["retired", "left", "replaced"], [200]),
);

export function absent(probe: string, layer: string, reason: string): Pick<Condition, "absence"> {
  return { absence: { observation: byOperator(probe, answer("closed", [layer], [reason])) } };
}
export const NO_AGENT_CONSUMED = absent("agents_consumed", "registry", "no_agent_consumed");
export const NO_ROOM_SHARED = absent("rooms_shared", "homeserver", "no_room_in_scope");

/** Of the agents that are offered to the partner, where there is any. */
export function ofAgents(name: string, ...requirements: readonly Requirement[]): Condition {
  const absence = absent("agents_offered", "registry", "no_agent_offered");
  return { ...atGateway(name, ...requirements), ...absence };
}
