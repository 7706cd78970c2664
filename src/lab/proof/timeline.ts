// The hops of one question as they were observed, in order.
import { type CompleteOrganisation, partnerOf } from "../organisations.ts";
import type { AskResult } from "./ask.ts";

export interface Hop {
  /** Milliseconds since the question was sent. */
  readonly atMs: number;
  readonly what: string;
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
  const hops: Hop[] = [];
  const add = (time: number | string | null | undefined, what: string) => {
    if (time === null || time === undefined) return;
    const at = typeof time === "string" ? Date.parse(time) : time;
    hops.push({ atMs: at - result.sentAt, what });
  };
  const partner = partnerOf(bridgeOf);
  const { audit, gateway, views } = result;
  add(result.sentAt, "the question is sent");
  add(audit.admitted_at, `${bridgeOf}'s bridge has recorded it and acknowledged it`);
  add(result.sendAnsweredAt, "the homeserver has told the asker that it is sent");
  add(views[partner].questionSeenAt, `it is in ${partner}'s view of the room`);
  if (gateway !== null) {
    const startedAt = Date.parse(gateway.start_time);
    add(startedAt, `${publisher}'s gateway lets it in: azp ${gateway.azp}`);
    add(startedAt + gateway.duration_ms, `${publisher}'s agent has answered (${gateway.code})`);
  }
  add(audit.accepted_at, "the bridge knows that the agent has accepted it");
  add(result.answeredAt, `${bridgeOf}'s homeserver has the answer`);
  add(views[bridgeOf].answerSeenAt, `the answer is in ${bridgeOf}'s view of the room`);
  add(views[partner].answerSeenAt, `the answer is in ${partner}'s view of the room`);
  add(audit.time, `the delegation has ended: ${audit.outcome}, ${audit.terminal_reason}`);
  return hops.sort((a, b) => a.atMs - b.atMs);
}
