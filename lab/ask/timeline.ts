// The observed hops of one question, in order.
// Invariant: a hop is listed after its cause unless its time is clearly earlier: the times come from several programs,
// which take and round them at different moments.
import { type CompleteOrganisation, partnerOf } from "../organisations.ts";
import type { AskResult } from "./ask.ts";

export interface Hop {
  /** Milliseconds since the question was sent. */
  readonly atMs: number;
  readonly what: string;
}

/** A hop that is earlier than its cause by more than this is listed by its time, so that the error shows. */
const SAME_MOMENT_MS = 1_000;

interface Caused extends Hop {
  /** The sort key: its own time, or that of the last of its causes. */
  readonly orderMs: number;
}

/**
 * @param bridgeOf whose bridge carried the question
 * @param publisher whose agent answered
 */
export function timelineOf(
  result: AskResult,
  bridgeOf: CompleteOrganisation,
  publisher: CompleteOrganisation,
): Hop[] {
  const hops: Caused[] = [];
  // Added in the order of causes, which decides between equals.
  const add = (
    time: number | string | null | undefined,
    what: string,
    ...causes: readonly (Caused | undefined)[]
  ): Caused | undefined => {
    if (time === null || time === undefined) return undefined;
    const atMs = (typeof time === "string" ? Date.parse(time) : time) - result.sentAt;
    const causedMs = Math.max(...causes.map((cause) => cause?.orderMs ?? Number.NEGATIVE_INFINITY));
    const isSameMoment = causedMs > atMs && causedMs - atMs <= SAME_MOMENT_MS;
    const hop = { atMs, what, orderMs: isSameMoment ? causedMs : atMs };
    hops.push(hop);
    return hop;
  };
  const partner = partnerOf(bridgeOf);
  const { audit, gateway, views } = result;
  const sent = add(result.sentAt, "the question is sent");
  const recorded = add(audit.admitted_at, `${bridgeOf}'s bridge has recorded it and acknowledged it`, sent);
  add(result.sendAnsweredAt, "the homeserver has told the asker that it is sent", sent);
  add(views[partner].questionArrivedAt, `the question is in ${partner}'s view of the room`, sent);
  const startedAt = gateway === null ? undefined : Date.parse(gateway.start_time);
  const letIn = add(startedAt, `${publisher}'s gateway lets it in: azp ${gateway?.azp}`, recorded);
  const worked = add(
    startedAt === undefined ? undefined : startedAt + (gateway?.duration_ms ?? 0),
    `${publisher}'s agent has answered (${gateway?.code})`,
    letIn,
  );
  // A stream ends after its answer was received, so later hops are caused by the admission.
  const accepted = add(
    audit.accepted_at,
    "the bridge knows that the agent has accepted it",
    letIn ?? recorded,
  );
  const answered = add(
    result.answeredAt,
    `${bridgeOf}'s homeserver has the answer`,
    ...[accepted, letIn, recorded],
  );
  add(views[bridgeOf].answerArrivedAt, `the answer is in ${bridgeOf}'s view of the room`, answered);
  add(views[partner].answerArrivedAt, `the answer is in ${partner}'s view of the room`, answered);
  add(
    audit.time,
    `the delegation has ended: ${audit.outcome}, ${audit.terminal_reason}`,
    ...[answered, accepted, recorded, worked],
  );
  return hops.toSorted((a, b) => a.orderMs - b.orderMs).map(({ atMs, what }) => ({ atMs, what }));
}
