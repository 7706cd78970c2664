// What the runs take place in: three rooms, two agents, two senders, and limits that a few questions reach.
import type { Outcome } from "../../../src/bridge/ledger/delegations.ts";
import type { UserId } from "../../../src/domain/identifiers.ts";
import { BUCKET, ghost, LEASE_MS, room } from "../ledger.ts";

export const ROOMS = ["r0", "r1", "r2"].map(room);
export const GHOSTS = ["docs", "math"].map((name) => ghost(name));
export const SENDERS = ["@alice:a.test", "@bob:b.test"] as UserId[];
export const KEY_WAIT_MS = 9 * LEASE_MS;
export const MANY = { ...BUCKET, burst: 99_999 };

export const ended = (
  state: Outcome["state"],
  stage: Outcome["stage"],
  reason: Outcome["reason"],
  notice?: Outcome["notice"],
) => ({
  ...{ state, stage, reason },
  ...(notice === undefined ? {} : { notice }),
});
export const OUTCOMES = {
  failed: ended("failed", "dispatch", "agent_failed", "delegation_failed"),
  refused: ended("denied", "limiter", "rate_limited", "rate_limited"),
  canceled: ended("canceled", "dispatch", "source_redacted"),
  late: ended("failed", "follow", "answer_deadline_exceeded", "delegation_failed"),
  unasked: ended("failed", "follow", "input_wait_elapsed", "delegation_failed"),
} satisfies Record<string, Outcome>;

export const LIMITS = { room: 3, global: 6, server: 5, agent: 5, roomEnvelopes: 2, senderEnvelopes: 3 };

/** Of a list, one of the newest. */
export const recent = <T>(all: readonly T[], which: number): T | undefined =>
  all[all.length - 1 - (which % all.length)];
