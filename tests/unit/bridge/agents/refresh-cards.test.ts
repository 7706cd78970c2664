import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import type {
  AgentDirectory,
  AgentsSnapshot,
  AgentTarget,
} from "../../../../src/bridge/agents/loaded-agents.ts";
import { createCardRefresh, ghostName } from "../../../../src/bridge/agents/refresh-cards.ts";
import type { TrustDecision } from "../../../../src/bridge/agents/trust.ts";
import type { AgentCard } from "../../../../src/cards/card-fields.ts";
import { agentTarget } from "../../../support/agents.ts";
import { fullCard, testKey } from "../../../support/cards.ts";
import { ManualClock } from "../../../support/manual-clock.ts";
import { recordedLog } from "../../../support/recorded-log.ts";

const key = await testKey("k1");
const MINUTE = 60_000;
const card = (name: string) => ({ ...fullCard(), name }) as unknown as AgentCard;
const verified = (name = "Docs"): TrustDecision => ({
  trust: "verified",
  card: card(name),
  agentVersion: "1",
});

/** A sync whose parts say what the test lets them, and that writes down what it is asked. */
function fixture(t: TestContext, first: readonly AgentTarget[]) {
  const clock = new ManualClock(0);
  const asked: string[] = [];
  const state = {
    targets: first,
    decide: async (): Promise<TrustDecision> => verified(),
    missing: async (): Promise<void> => {},
    profile: async (): Promise<{ kind: string }> => ({ kind: "ok" }),
  };
  const snapshot = (): AgentsSnapshot => ({
    byGhost: new Map(state.targets.map((target) => [target.ghost, target])),
    partnerGhosts: [],
  });
  const directory: AgentDirectory = {
    current: async () => snapshot(),
  };
  const sync = createCardRefresh({
    directory,
    gate: {
      refresh: async (target) => {
        asked.push(`check ${target.agentId}`);
        return await state.decide();
      },
      isOfPresentPin: () => true,
      revoke: async (target) => {
        asked.push(`revoke ${target.agentId}`);
      },
      revokeMissing: async (named) => {
        asked.push(`named ${[...named.keys()].join()}`);
        await state.missing();
      },
    },
    setProfile: async (ghost, name, chosenBy) => {
      asked.push(`${ghost} is ${name}${chosenBy === "card" ? "" : ", as configured"}`);
      return await state.profile();
    },
    clock,
    log: recordedLog().log,
    onError: (error) => asked.push(`error ${(error as Error).message}`),
  });
  t.after(() => sync.loop.drain());
  const taken = () => asked.splice(0).filter((one) => !one.startsWith("named "));
  const compared = () => asked.filter((one) => one.startsWith("named "));
  const change = (targets: readonly AgentTarget[]) => {
    state.targets = targets;
  };
  return { clock, sync, state, taken, compared, change };
}

const NAMED = ["check docs", "@agent_docs:a.test is Docs · Org A"];

describe("card refresh", () => {
  it("each ghost is named by its verified card, which is verified again before the decision expires [AGT-2]", async (t) => {
    const { clock, sync, taken } = fixture(t, [agentTarget(key)]);
    await sync.syncDue();
    assert.deepEqual(taken(), NAMED);
    await clock.advance(4 * MINUTE - 1);
    await sync.syncDue();
    assert.deepEqual(taken(), []);
    await clock.advance(1);
    await sync.syncDue();
    assert.deepEqual(taken(), NAMED);
  });

  it("a quarantined target's card names no ghost [AGT-2]", async (t) => {
    const { sync, state, taken } = fixture(t, [agentTarget(key)]);
    state.decide = async () => ({ trust: "quarantined", reason: "agent_card_untrusted" });
    await sync.syncDue();
    assert.deepEqual(taken(), ["check docs"]);
  });

  it("a changed, emptied or removed entry takes effect within a second, without a question [AGT-1]", async (t) => {
    const { sync, clock, taken, change } = fixture(t, [agentTarget(key)]);
    sync.loop.start();
    await clock.advance(0);
    assert.deepEqual(taken(), NAMED);
    change([agentTarget(key, { allowedSenders: [] })]);
    await clock.advance(1_000);
    assert.deepEqual(taken(), NAMED);
    change([agentTarget(undefined)]);
    await clock.advance(1_000);
    assert.deepEqual(taken(), NAMED);
    change([agentTarget(undefined, { pollInterval: 1 })]);
    await clock.advance(1_000);
    assert.deepEqual(taken(), [], "nothing that trust or name depends on");
    change([agentTarget(key, { displayName: "Papers" })]);
    await clock.advance(1_000);
    assert.deepEqual(taken(), ["check docs", "@agent_docs:a.test is Papers, as configured"]);
    change([]);
    await clock.advance(1_000);
    assert.deepEqual(taken(), ["revoke docs"]);
    change([agentTarget(key)]);
    await clock.advance(1_000);
    assert.deepEqual(taken(), NAMED);
  });

  it("recorded targets are compared with agents.yaml once, and again if that failed [AGT-1]", async (t) => {
    const { sync, state, compared } = fixture(t, [agentTarget(key)]);
    state.missing = () => Promise.reject(new Error("down"));
    await assert.rejects(sync.syncDue(), /down/);
    state.missing = async () => {};
    await sync.syncDue();
    await sync.syncDue();
    assert.deepEqual(compared(), ["named @agent_docs:a.test", "named @agent_docs:a.test"]);
  });

  it("synchronisation is repeated soon after a missing card, a refusing homeserver or an error", async (t) => {
    const { sync, state, clock, taken } = fixture(t, [agentTarget(key)]);
    state.decide = async () => ({ trust: "unknown", retryAfterMs: 2_000 });
    await sync.syncDue();
    await clock.advance(2_000);
    state.decide = async () => verified();
    state.profile = async () => ({ kind: "retry" });
    await sync.syncDue();
    await clock.advance(15_000);
    state.decide = () => Promise.reject(new Error("down"));
    await sync.syncDue();
    await clock.advance(15_000);
    state.decide = async () => verified();
    state.profile = async () => ({ kind: "ok" });
    await sync.syncDue();
    assert.deepEqual(taken(), ["check docs", ...NAMED, "check docs", "error down", ...NAMED]);
  });

  it("a name is stripped of misleading characters, bounded, and never empty", () => {
    const target = agentTarget(key);
    assert.equal(ghostName(target, card("Straße 🚦 東京")), "Straße 🚦 東京 · Org A");
    assert.equal(ghostName(target, card(" Docs\n\u202e\u200b of\tA\u2028 ")), "Docs of A · Org A");
    assert.equal(ghostName(target, card("🚦".repeat(300))), `${"🚦".repeat(100)} · Org A`);
    for (const invisible of ["\u200b", "\u3164\u2800", "\u115f\u034f", "\ufe0f", "\u{e0100}"]) {
      assert.equal(ghostName(target, card(invisible)), "docs · Org A");
      assert.equal(ghostName(target, card(`Do${invisible}cs`)), "Docs · Org A");
    }
    assert.equal(ghostName(target, card("❤\ufe0f")), "❤\ufe0f · Org A");
    assert.equal(ghostName(agentTarget(key, { displayName: "Papers" }), card("Docs")), "Papers");
  });
});
