import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { AgentTarget } from "../../../../src/bridge/agents/loaded-agents.ts";
import type { TrustDecision } from "../../../../src/bridge/agents/trust.ts";
import { mayBeNew, recheck } from "../../../../src/bridge/delegation/recheck-policy.ts";
import type { ClaimedDelegation } from "../../../../src/bridge/ledger/leases.ts";
import { namedTarget } from "../../../support/agents.ts";
import { cardOf } from "../../../support/delegation.ts";

const TARGET = namedTarget("docs");
const VERIFIED: TrustDecision = {
  trust: "verified",
  card: cardOf("http://127.0.0.1:1"),
  agentVersion: "1.0.0",
};
const QUARANTINED: TrustDecision = { trust: "quarantined", reason: "agent_card_untrusted" };
const UNKNOWN: TrustDecision = { trust: "unknown", retryAfterMs: 1_234 };

async function check(target: AgentTarget | undefined, trust: TrustDecision, sender = "@alice:a.test") {
  let trustChecks = 0;
  const result = await recheck(
    {
      directory: {
        current: async () => ({
          partnerGhosts: [],
          byGhost: new Map(target === undefined ? [] : [[target.ghost, target]]),
        }),
      },
      trust: {
        check: async () => {
          trustChecks += 1;
          return trust;
        },
      },
    },
    { ghost: TARGET.ghost, sender, targetFingerprint: TARGET.fingerprint } as ClaimedDelegation,
  );
  return { result, trustChecks };
}

describe("policy before each call", () => {
  it("an agent that is configured, trusted and open to the sender is cleared [DEL-2]", async () => {
    const { result } = await check(TARGET, VERIFIED);
    assert.equal(result.kind, "cleared");
  });

  it("an agent that was removed is denied with agent_removed [DEL-2]", async () => {
    const { result, trustChecks } = await check(undefined, VERIFIED);
    assert.deepEqual(result, {
      kind: "stopped",
      outcome: { state: "denied", stage: "policy", reason: "agent_removed", notice: "policy_denied" },
    });
    assert.equal(trustChecks, 0);
    assert.ok(result.kind === "stopped");
    const waits = [0, 3, 4].map((attempts) => mayBeNew(result, { attempts }));
    assert.deepEqual(waits, [true, true, false], "for some seconds another process may know more");
  });

  it("a quarantined target denies with agent_card_untrusted [DEL-2]", async () => {
    const outcome = {
      state: "denied",
      stage: "agent_card",
      reason: "agent_card_untrusted",
      notice: "delegation_stopped",
    };
    assert.deepEqual((await check(TARGET, QUARANTINED)).result, { kind: "stopped", outcome });
  });

  it("a target with another identity than at intake is untrusted, and its card is not fetched [DEL-2]", async () => {
    const { result, trustChecks } = await check({ ...TARGET, fingerprint: "sha256:other" }, VERIFIED);
    assert.equal(result.kind === "stopped" && result.outcome.reason, "agent_card_untrusted");
    assert.equal(trustChecks, 0);
  });

  it("a sender, or an origin, that is no longer allowed denies with sender_policy_rejected [DEL-2]", async () => {
    for (const [servers, senders] of [
      [["a.test"], ["@bob:a.test"]],
      [["b.test"], ["*:a.test"]],
    ] as const) {
      const entry = { ...TARGET.entry, allowedServers: [...servers], allowedSenders: [...senders] };
      const { result } = await check({ ...TARGET, entry }, UNKNOWN);
      assert.deepEqual(result.kind === "stopped" && result.outcome, {
        state: "denied",
        stage: "policy",
        reason: "sender_policy_rejected",
        notice: "policy_denied",
      });
    }
  });

  it("a card that cannot be fetched leads to no decision", async () => {
    assert.deepEqual((await check(TARGET, UNKNOWN)).result, { kind: "unknown", retryAfterMs: 1_234 });
  });
});
