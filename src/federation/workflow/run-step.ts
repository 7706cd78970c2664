// The engine: runs one step of a procedure: reconcile → observe → evaluate, between the caller's commit and its record.
// And the verdict of a step: its conditions, evaluated, with what was found and what to do.
// Invariants: nothing is observed before the plane was brought to what is committed, nor recorded before it was evaluated;
// each part finds what it has done before, so that a step that was cut off is run again as a whole; nothing holds here that
// an auditor would refuse; a finding besides the table only ever takes a verdict away.
import * as z from "zod";
import { DrawbridgeError } from "../../domain/errors.ts";
import { Sha256Digest } from "../../domain/identifier-fields.ts";
import type { Lack, Verdict } from "../../records/conditions/condition.ts";
import { type Evaluated, isSettled, wasNotTried } from "../../records/conditions/evaluate.ts";
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import { Word } from "../../records/format/fields.ts";
import { pollUntil } from "../../runtime/concurrency.ts";
import type { PlaneName } from "../plane-order.ts";
import { OUTSIDE_PROBES } from "../probes/read-answers.ts";
import { acceptedState, type OnBadHead } from "../reconcile/accept-head.ts";
import type { Federation } from "../reconcile/context.ts";
import type { DesiredState } from "../reconcile/desired-state.ts";
import { type PassResult, runPass } from "../reconcile/pass.ts";
import { type Applied, readPlane } from "../state/plane-records.ts";

export interface Reached {
  readonly desired: DesiredState;
  readonly partner: string;
  readonly applied: Applied | null;
  readonly pass: PassResult | undefined;
}

export type Observed = Readonly<{ items: readonly EvidenceItem[]; tried?: readonly EvidenceItem[] }>;

export interface StepRun<Own extends Observed = Observed> {
  readonly plane: PlaneName;
  /** Server name: whose plane it is, or whose agent. */
  readonly partner: string;
  /** The plane is brought to the branch's head; `again`: even if recorded as in force; `observe`: nothing is touched. */
  readonly how: "apply" | "again" | "observe";
  /** What a refused head means for what is only observed. */
  readonly onBadHead?: OnBadHead;
  /** What helps where something was pushed on top of what was committed, and is refused; said before the rest. */
  readonly refusalHint?: string | undefined;
  readonly observe: (reached: Reached) => Promise<Own>;
  readonly evaluate: (reached: Reached, observed: Own) => readonly JudgedCondition[];
  readonly withinMs?: number;
}

export interface StepResult<Own = Observed> extends Reached {
  readonly observed: Own;
  readonly conditions: readonly JudgedCondition[];
  readonly verdict: Verdict;
}

/** How long an open plane is waited for: other programs, and the partner's, follow what was opened. */
export const OPEN_WITHIN_MS = 30_000;
const POLL_MS = 500;

/** @throws DrawbridgeError `head_refused` when what the branch holds is not taken up; and what the parts throw */
export const runStep = async <Own extends Observed>(context: Federation, step: StepRun<Own>) =>
  observeStep(context, step, await reach(context, step));

/** Observes a plane, after a pass has applied it, until it is as it should be or the time is over. */
export async function observeStep<Own extends Observed>(
  { clock }: Federation,
  { plane, observe, evaluate, withinMs = 0 }: StepRun<Own>,
  reached: Reached,
): Promise<StepResult<Own>> {
  const { applied } = reached;
  const read = async () => {
    const observed = await observe(reached);
    const conditions = objectTo(evaluate(reached, observed), notReached(plane, applied));
    return { ...reached, observed, conditions, verdict: verdictOf(conditions) };
  };
  const within = { withinMs: applied?.outcome === "in_force" ? withinMs : 0, everyMs: POLL_MS };
  return pollUntil(clock, within, read, ({ conditions }) => conditions.every(isSettled));
}

async function reach<Own extends Observed>(
  context: Federation,
  { plane, partner, how, onBadHead = "refuse", refusalHint }: StepRun<Own>,
): Promise<Reached> {
  if (how === "observe") {
    const { desired } = await acceptedState(context, onBadHead);
    const { applied, applying } = readPlane(context.state, plane);
    // An attempt at another state that has no end may have taken away what was in force before it.
    const isStanding = applying === null || applying.digest === applied?.digest;
    return { desired, partner, applied: isStanding ? applied : null, pass: undefined };
  }
  const pass = await runPass(context, { plane, force: true, again: how === "again" });
  if (pass.refusal !== undefined) {
    // What this machine has committed was good, and was pushed on before it was taken up.
    const { detail, hint } = pass.refusal;
    throw new DrawbridgeError("head_refused", `what was committed is not in force: ${detail}`, {
      hint: refusalHint === undefined ? hint : `${refusalHint} ${hint}`,
    });
  }
  const { desired } = pass;
  if (desired === undefined) throw new DrawbridgeError("internal", "a pass took nothing up");
  return { desired, partner, applied: appliedIn(pass, plane), pass };
}

export const appliedIn = ({ planes }: PassResult, plane: PlaneName): Applied | null =>
  planes.find((report) => report.plane === plane)?.record.applied ?? null;

function notReached(plane: PlaneName, applied: Applied | null): readonly Objection[] {
  if (applied === null || applied.outcome === "in_force" || applied.outcome === "incomplete") return [];
  const hint = `See drawbridge federation status; then run this again: it applies the ${plane} plane once more.`;
  return [{ condition: "in_force", probe: "reconciled", found: applied.reason ?? applied.outcome, hint }];
}

export const JudgedCondition = z.strictObject({
  condition: Word,
  verdict: z.enum(["met", "not_met", "unknown", "not_applicable", "unmanaged"]),
  evidence: z.array(Sha256Digest),
  /** The last probe that was tried, or the one that is missing. */
  probe: z.string(),
  ...{ found: z.string(), hint: z.string() },
});
export type JudgedCondition = z.output<typeof JudgedCondition>;

/** A condition that does not hold whatever the evidence says. */
export type Objection = Omit<JudgedCondition, "verdict" | "evidence">;

/** What was observed, as far as it explains why a condition does not hold. */
export type Evidence = Readonly<{ items: readonly EvidenceItem[]; fromOutside: boolean }>;

/** Takes a verdict away from the conditions that something speaks against. */
export const objectTo = (conditions: readonly JudgedCondition[], objections: readonly Objection[]) =>
  conditions.map((one) => {
    const objection = objections.find(({ condition }) => condition === one.condition);
    return objection === undefined || one.verdict === "unmanaged" ? one : notMet(objection);
  });

/** @param more what else there is to say of it, such as `unknown` in the place of `not_met` */
export function notMet(objection: Objection, more: Partial<JudgedCondition> = {}): JudgedCondition {
  return { ...objection, verdict: "not_met", evidence: [], ...more };
}

/** The verdict of a whole step: a plane that nobody manages, or with nothing for the partner on it, is not met. */
export function verdictOf(conditions: readonly Pick<JudgedCondition, "condition" | "verdict">[]): Verdict {
  const besides = conditions.filter(({ condition }) => condition !== "in_force");
  const hasNothing = besides.length > 0 && besides.every(({ verdict }) => verdict === "not_applicable");
  if (hasNothing && conditions.every(isSettled)) return "not_applicable";
  const order = ["not_met", "unknown", "met", "not_applicable"] as const;
  return order.find((verdict) => conditions.some((one) => one.verdict === verdict)) ?? "unmanaged";
}

export function judged({ condition, verdict, evidence, lacks }: Evaluated, all: Evidence): JudgedCondition {
  const [lack] = lacks;
  if (lack === undefined) {
    const item = all.items.find(({ digest }) => evidence.includes(digest));
    const found = verdict === "met" ? (item?.reason ?? item?.verdict ?? verdict) : verdict;
    return { condition, verdict, evidence: [...evidence], probe: item?.probe ?? "", found, hint: "" };
  }
  return { condition, verdict, evidence: [], probe: lack.probe, ...foundOf(lack, all, HINTS[condition]) };
}

function foundOf({ probe, vantage, subject, item }: Lack, { items, fromOutside }: Evidence, hint = "") {
  if (item !== undefined) return { found: foundIn(item), hint };
  const notTried = items.find((one) => one.probe === probe && one.vantage === vantage && wasNotTried(one));
  if (notTried !== undefined) {
    const hint = "Add what is missing to the probe file, and run the step again with --probe-config.";
    return { found: `${probe} was not tried: ${notTried.reason}`, hint };
  }
  if (vantage === "partner" && Object.hasOwn(OUTSIDE_PROBES, probe) && !fromOutside) {
    const hint =
      "Run the step again with --probe-config and a probe file (drawbridge federation probe --help).";
    return { found: `nobody has tried ${probe} as the counterparty`, hint };
  }
  // Where a plane could not be asked at all, one item says so in the place of all the others.
  const failed = items.find((one) => one.probe === "plane");
  if (failed !== undefined) return { found: foundIn(failed), hint };
  return { found: `${probe}${on(subject)} has shown nothing`, hint };
}

export function foundIn({ probe, subject, verdict, layer, status, reason }: EvidenceItem): string {
  const answer = [layer, status, reason].filter((part) => part !== null).join(" ");
  return `${probe}${on(subject)}: ${verdict} (${answer})`;
}

const on = (subject: string | null): string => (subject === null ? "" : ` on ${subject}`);

const APPLY = (plane: string) => `drawbridge reconcile --once --plane ${plane}`;
const ROOMS = `${APPLY("rooms")}; what stays out of reach is waived by name.`;
const STATUS = "See drawbridge federation status; then give the same command again.";

const QUARANTINED =
  "The target stays quarantined, and questions to it are refused with a notice. Read the bridge's log, then run this again.";
const NOT_SERVED =
  "Have the publisher serve the card that the new key has signed, then run the same command again; until then the target is quarantined.";
const STALE =
  "The ACL is lifted, and a server goes on denying, or says nothing: run this again; if it stays, load the border module, check border.statusToken, and restart the homeserver.";

/** What an operator can do about a condition that does not hold; beside the table, which records share and which names no command. */
export const HINTS: Readonly<Record<string, string>> = {
  in_force: STATUS,
  partner_not_rendered:
    "See that the gateway runs and follows its files (drawbridge federation status); where the registry still admits it, render and commit.",
  token_refused: `Disable the client at the issuer: ${APPLY("gateway")}.`,
  invoke_refused: `The gateway still lets it through: ${APPLY("gateway")}.`,
  card_gone_or_refused: `See that the gateway runs. Where it still publishes the card: ${APPLY("card")}. Where others consume it, sign stage 1 first: its use must be observed to be refused.`,
  agent_card_untrusted:
    "See that the bridge runs and follows agents.yaml; its audit must say agent_card_untrusted.",
  people_may_not_ask: "See that the bridge runs and follows agents.yaml.",
  acl_excludes_partner: `A room's ACL still admits it: ${ROOMS}`,
  enforcement_holds: `A server does not enforce the ACL: ${ROOMS}`,
  members_gone: `Its people are still members: ${ROOMS}`,
  retained_servers_notified: `A retained server does not show the ACL: ${ROOMS}`,
  kept_out_of_rooms: `It can still come in: ${ROOMS}`,
  policy_digest_changed: `See that the registry closes the border plane; then ${APPLY("border")}.`,
  server_not_allowed:
    "No denial was read in border.violationsFile. See that this user may read it (the module writes it with mode 0640), then run the step again with --probe-config and a probe file that has a signing key and an invitee.",
  no_restart:
    "The homeserver does not answer, or was restarted meanwhile. Once it answers, give the same command again: it measures from that process on.",
  whitelist_excludes_partner: `The homeserver runs with the old whitelist: ${APPLY("transport")}.`,
  send_refused: `Where its transactions are still accepted: ${APPLY("transport")}. Where the probe reached nobody: see as.federationCaFile and as.federationProxy in the probe file.`,
  deletion_recorded:
    "Run drawbridge offboarding purge PARTNER; or, where nothing is to go, write duties.purge.waiver in the private record.",
  whitelist_admits_partner: `The homeserver runs with the old whitelist: ${APPLY("transport")}.`,
  kept_rooms_hear_it: STALE,
  other_rooms_hear_it: STALE,
  policy_admits_partner: `The border still refuses it: ${APPLY("border")}.`,
  agent_card_verified:
    "See that the bridge runs, and have the partner serve the card that its pinned key has signed; drawbridge agent pin changes the pin. Then run this again.",
  card_published: "See that the gateway runs and the agent serves its signed card.",
  may_invoke: "See that gateway and issuer run, and that its client is declared.",
  old_identity_fails:
    "Where no card of the old key is at hand, run the same command again with --old-card FILE: one that the old key has signed, from the publisher or a copy of one's own. Where such a card verifies against the new pin, do not go on: report that.",
  new_identity_verifies: NOT_SERVED,
  old_key_not_served: NOT_SERVED,
  bridge_has_verified: QUARANTINED,
  bridge_trusts_it_no_more: QUARANTINED,
  agent_withdrawn:
    "Where a client with which it had applied may invoke the agent, take that out of registry/organisation.yaml. Render and commit the registry, then run this again.",
  duties_recorded:
    "Complete the private record: drawbridge offboarding show --record FILE names what it lacks.",
  static_tests_pass: "Run drawbridge federation check in a work tree, correct what it names, and commit.",
};
