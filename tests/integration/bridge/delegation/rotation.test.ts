// A rotation of an agent's key, as those who ask see it: nothing they ask is lost.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { EN } from "../../../../src/bridge/texts/en.ts";
import { delegationSuite } from "../../../support/delegation-suite.ts";

describe("rotation of an agent's key", () => {
  const setUpDelegation = delegationSuite();

  it("questions during a rotation are refused with a notice, and those after the new pin are answered [PRT-1]", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t);
    const verified = harness.trust;

    // The publisher has rotated, the consumer has not pinned yet.
    harness.trust = { trust: "quarantined", reason: "agent_card_untrusted" };
    const during = await admit();
    harness.worker().start();
    await harness.until(() => during.outcome !== undefined);
    assert.deepEqual(during.outcome, {
      state: "denied",
      stage: "agent_card",
      reason: "agent_card_untrusted",
      notice: "delegation_stopped",
    });
    assert.match(EN.reasons.agent_card_untrusted, /not verified at the moment.*then ask once more/s);
    assert.equal(agent.requests.length, 0, "nothing reached the agent");

    harness.trust = verified;
    const after = await admit("q2");
    await harness.until(() => after.outcome !== undefined);
    assert.equal(after.outcome?.reason, "answered");
    assert.equal(during.outcome?.state, "denied", "what was refused is not asked again by itself");
  });

  it("a question waits while the card cannot be fetched, and is answered once it can [PRT-1]", async (t) => {
    const { harness, admit } = await setUpDelegation(t);
    const verified = harness.trust;
    harness.trust = { trust: "unknown", retryAfterMs: 1_000 };
    const row = await admit();
    harness.worker().start();
    await harness.until(() => harness.trustChecks > 1);
    const isEnded = () => row.outcome !== undefined;
    assert.equal(isEnded(), false, "it waits");
    harness.trust = verified;
    await harness.until(isEnded);
    assert.equal(row.outcome?.reason, "answered");
  });

  it("a question to the old identity is refused with a notice when the pin changes before its dispatch [PRT-1]", async (t) => {
    const { harness, admit } = await setUpDelegation(t);
    const { target } = harness;
    assert.ok(target !== undefined);
    const row = await admit();
    harness.target = { ...target, fingerprint: `sha256:${"1".repeat(64)}` };
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined);
    assert.deepEqual(
      [row.outcome?.reason, row.outcome?.notice],
      ["agent_card_untrusted", "delegation_stopped"],
    );
  });
});
