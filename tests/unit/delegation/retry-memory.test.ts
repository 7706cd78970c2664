import assert from "node:assert/strict";
import { test } from "node:test";
import { RetryMemory } from "../../../src/bridge/delegation/retry-memory.ts";
import type { ClaimedDelegation, Lease } from "../../../src/bridge/ledger/types.ts";

const lease = (delegationId: string, fence: number): Lease => ({
  delegationId,
  holder: "one",
  fence: String(fence),
});
const claimed = (delegationId: string, fence: number) =>
  ({ lease: lease(delegationId, fence) }) as ClaimedDelegation;
const KNOWN = { undelivered: true, reason: "agent_unavailable" } as const;

test("what is remembered holds for the very next claim", () => {
  const memory = new RetryMemory();
  memory.remember(lease("1", 4), KNOWN);
  assert.equal(memory.take(claimed("1", 5))?.undelivered, true);
});

test("DEL-9: another holder's claim in between makes it worthless", () => {
  const memory = new RetryMemory();
  memory.remember(lease("1", 4), KNOWN);
  assert.equal(memory.take(claimed("1", 6)), undefined);
});

test("it is believed once", () => {
  const memory = new RetryMemory();
  memory.remember(lease("1", 4), KNOWN);
  memory.take(claimed("1", 5));
  assert.equal(memory.take(claimed("1", 5)), undefined);
});

test("it forgets the oldest rather than grow without end", () => {
  const memory = new RetryMemory();
  for (let id = 0; id <= 8_192; id++) memory.remember(lease(String(id), 1), KNOWN);
  assert.equal(memory.take(claimed("0", 2)), undefined);
  assert.ok(memory.take(claimed("8192", 2)));
});
