// The trust gate over a real HTTP server and a real ledger.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import type { AgentTarget } from "../../../../src/bridge/agents/loaded-agents.ts";
import { createCardRefresh } from "../../../../src/bridge/agents/refresh-cards.ts";
import { createCardTrustGate } from "../../../../src/bridge/agents/trust.ts";
import { AgentCardAudit } from "../../../../src/bridge/audit/records.ts";
import { agentTarget } from "../../../support/agents.ts";
import { bytesOf, fullCard, signedCard, testKey } from "../../../support/cards.ts";
import { httpServer, json } from "../../../support/http-server.ts";
import { ledgerFixture, T0 } from "../../../support/ledger.ts";
import { ManualClock } from "../../../support/manual-clock.ts";
import { recordedLog } from "../../../support/recorded-log.ts";

const key = await testKey("k1");
const other = await testKey("k1");
const GOOD = bytesOf(signedCard(key, fullCard()));
const FORGED = bytesOf({ ...signedCard(key, fullCard()), name: "Forged" });
const MINUTE = 60_000;
const QUARANTINED = { trust: "quarantined", reason: "agent_card_untrusted" };

async function gateFixture(t: TestContext) {
  const { ledger, rows } = await ledgerFixture(t, 4);
  const server = await httpServer(t);
  server.answer = json(GOOD);
  const clock = new ManualClock(T0);
  const recorded = recordedLog();
  const options = { ledger, clock, log: recorded.log };
  const gate = createCardTrustGate(options);
  const target = agentTarget(key, { cardUrl: `${server.url}/card` });
  const audits = async () =>
    (await rows("SELECT record FROM bridge_audit ORDER BY id")).map(
      ({ record }) => record as Record<string, unknown>,
    );
  return { ledger, server, clock, recorded, gate, options, target, audits };
}

const reasons = (records: readonly Record<string, unknown>[]) => records.map((record) => record["reason"]);

describe("card trust gate", () => {
  it("a verified card is recorded, audited and cached for five minutes [AGT-2]", async (t) => {
    const { ledger, server, clock, gate, target, audits } = await gateFixture(t);
    const decision = await gate.check(target);
    assert.equal(decision.trust, "verified");
    assert.ok(decision.trust === "verified");
    assert.equal(decision.agentVersion, "2.1.0");
    assert.equal(decision.card.supportedInterfaces[0]?.url, "https://a.example.org/rpc");
    await clock.advance(5 * MINUTE - 1);
    assert.equal((await gate.check(target)).trust, "verified");
    assert.equal(server.requests.length, 1);
    await clock.advance(1);
    assert.equal((await gate.check(target)).trust, "verified");
    assert.equal(server.requests.length, 2);

    const record = await ledger.targets.get(target.ghost);
    assert.equal(record?.trust, "verified");
    assert.equal(record?.targetFingerprint, target.fingerprint);
    assert.match(record?.cardDigest ?? "", /^sha256:/);
    const [audit, ...more] = await audits();
    assert.deepEqual(more, [], "the same decision again is no change");
    assert.equal(audit?.["reason"], "agent_card_verified");
    assert.equal(audit?.["outcome"], "accepted");
    assert.equal(audit?.["key_id"], "k1");
    assert.equal(audit?.["origin"], new URL(server.url).host);
  });

  it("an agent-card audit record contains identifiers and codes, and no text of the card [AUD-1]", async (t) => {
    const { server, gate, target, audits, recorded } = await gateFixture(t);
    const card = {
      ...fullCard(),
      name: "canary-name",
      description: "canary-text",
      version: "canary version",
    };
    server.answer = json(bytesOf(signedCard(key, card)));
    assert.equal((await gate.check(target)).trust, "verified");
    const text = JSON.stringify([await audits(), recorded.lines]);
    assert.doesNotMatch(text, /canary/);
  });

  for (const [cardUrl, origin] of [
    ["https://Agents.Example.net/card", "agents.example.net:443"],
    ["http://[::1]/card", "[::1]:80"],
    ["https://agents.example.net:8443/card?a=b", "agents.example.net:8443"],
  ] as const) {
    it(`an agent-card audit record names the card's origin: ${origin} [AUD-1]`, async (t) => {
      const { gate, audits } = await gateFixture(t);
      await gate.check(agentTarget(undefined, { cardUrl }));
      const [audit] = await audits();
      assert.equal(AgentCardAudit.parse(audit).origin, origin);
    });
  }

  const FORGERIES: readonly (readonly [string, Parameters<typeof json>[0]])[] = [
    ["a changed card", FORGED],
    ["an unsigned card", bytesOf(fullCard())],
    ["a card by another key under the same key ID", bytesOf(signedCard(other, fullCard()))],
    ["a card under another key ID", bytesOf(signedCard(key, fullCard(), { alg: "ES256", kid: "K1" }))],
    ["no JSON", "<html>"],
    ["a card too large", Buffer.alloc(300_000, " ")],
  ];
  for (const [what, body] of FORGERIES) {
    it(`${what} quarantines the target [AGT-3]`, async (t) => {
      const { ledger, server, gate, target, audits } = await gateFixture(t);
      server.answer = json(body);
      assert.deepEqual(await gate.check(target), QUARANTINED);
      assert.equal((await ledger.targets.get(target.ghost))?.trust, "quarantined");
      const [audit] = await audits();
      assert.equal(audit?.["outcome"], "rejected");
      assert.equal(audit?.["reason"], "agent_card_untrusted");
    });
  }

  it("a card at a name that points to a private address is fetched only where its origin is listed [AGT-3] [AGT-4]", async (t) => {
    const { server, gate } = await gateFixture(t);
    const origin = `http://localhost:${new URL(server.url).port}`;
    const named = { cardUrl: `${origin}/card` };
    assert.equal((await gate.refresh(agentTarget(key, named))).trust, "unknown");
    assert.equal(server.requests.length, 0);
    const listed = agentTarget(key, { ...named, allowedOrigins: [origin] });
    assert.equal((await gate.refresh(listed)).trust, "verified");
  });

  it("a redirected card quarantines the target, and is not followed [AGT-3]", async (t) => {
    const { server, gate, target } = await gateFixture(t);
    server.answer = (request, response) =>
      request.url === "/card"
        ? response.writeHead(302, { location: "/good" }).end()
        : json(GOOD)(request, response);
    assert.deepEqual(await gate.check(target), QUARANTINED);
    assert.equal(server.requests.length, 1);
  });

  it("a refused card is fetched again after a while, not for each question, and a repaired one is accepted [AGT-2]", async (t) => {
    const { server, clock, gate, target, audits } = await gateFixture(t);
    server.answer = json(FORGED);
    for (let ask = 0; ask < 5; ask++) assert.deepEqual(await gate.check(target), QUARANTINED);
    assert.equal(server.requests.length, 1);
    server.answer = json(GOOD);
    await clock.advance(10_000);
    assert.equal((await gate.check(target)).trust, "verified");
    assert.deepEqual(reasons(await audits()), ["agent_card_untrusted", "agent_card_verified"]);
  });

  it("a target is quarantined without a fetch when its pin is removed, and verified when the pin is put back [AGT-1]", async (t) => {
    const { server, gate, target, audits } = await gateFixture(t);
    assert.equal((await gate.check(target)).trust, "verified");
    const { cardUrl } = target.entry;
    const revoked: AgentTarget[] = [
      agentTarget(undefined, { cardUrl }),
      agentTarget(key, { cardUrl, allowedServers: [] }),
      agentTarget(key, { cardUrl, allowedSenders: [] }),
    ];
    for (const [index, without] of revoked.entries()) {
      const before = server.requests.length;
      assert.deepEqual(await gate.check(without), QUARANTINED);
      assert.equal(server.requests.length, before);
      assert.equal((await gate.check(target)).trust, "verified");
      assert.equal((await audits()).length, 3 + 2 * index);
    }
    const both = ["agent_card_untrusted", "agent_card_verified"];
    assert.deepEqual(reasons(await audits()), ["agent_card_verified", ...both, ...both, ...both]);
  });

  it("a rotated pin does not use the decision about the old one [AGT-1]", async (t) => {
    const { gate, target } = await gateFixture(t);
    assert.equal((await gate.check(target)).trust, "verified");
    assert.deepEqual(await gate.check(agentTarget(other, { cardUrl: target.entry.cardUrl })), QUARANTINED);
  });

  it("a target is recorded as quarantined when its entry is removed [AGT-1]", async (t) => {
    const { ledger, gate, target, audits } = await gateFixture(t);
    await gate.check(target);
    await gate.revoke(target);
    assert.equal((await ledger.targets.get(target.ghost))?.trust, "quarantined");
    assert.deepEqual(reasons(await audits()), ["agent_card_verified", "agent_card_untrusted"]);
  });

  it("a card that one process still verifies is not recorded once another has revoked its target [AGT-1]", async (t) => {
    const { ledger, server, gate, options, target, audits } = await gateFixture(t);
    const elsewhere = createCardTrustGate(options);
    assert.equal((await elsewhere.check(target)).trust, "verified");
    const [asked, answer] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    server.answer = (request, response) => {
      asked.resolve();
      void answer.promise.then(() => json(GOOD)(request, response));
    };
    const checked = gate.check(target);
    await asked.promise;
    await elsewhere.revoke(target);
    answer.resolve();
    assert.equal((await checked).trust, "unknown");
    assert.equal((await ledger.targets.get(target.ghost))?.trust, "quarantined");
    assert.deepEqual(reasons(await audits()), ["agent_card_verified", "agent_card_untrusted"]);
    assert.equal((await gate.check(target)).trust, "verified", "an agent that is put back");
  });

  it("a pin that is removed and put back between two refreshes is verified again at once, though a question met it removed [AGT-1]", async (t) => {
    const { ledger, clock, options, gate, target, audits } = await gateFixture(t);
    const byGhost = new Map([[target.ghost, target]]);
    const refresh = createCardRefresh({
      ...options,
      directory: { current: async () => ({ byGhost, partnerGhosts: [] }) },
      gate,
      setProfile: async () => ({ kind: "ok" }),
    });
    await refresh.syncDue();
    assert.deepEqual(
      await gate.check(agentTarget(key, { ...target.entry, allowedSenders: [] })),
      QUARANTINED,
    );
    await clock.advance(1_000);
    await refresh.syncDue();
    assert.equal((await ledger.targets.get(target.ghost))?.trust, "verified");
    const [verified, untrusted] = ["agent_card_verified", "agent_card_untrusted"];
    assert.deepEqual(reasons(await audits()), [verified, untrusted, verified]);
  });

  it("a target whose entry was removed while the bridge was down is revoked once at the start [AGT-1]", async (t) => {
    const { ledger, gate, options, target, audits } = await gateFixture(t);
    await gate.check(target);
    const restarted = () =>
      createCardRefresh({
        ...options,
        directory: {
          current: async () => ({ byGhost: new Map(), partnerGhosts: [] }),
        },
        gate: createCardTrustGate(options),
        setProfile: async () => ({ kind: "ok" }),
      });
    for (let start = 0; start < 2; start++) await restarted().syncDue();
    assert.equal((await ledger.targets.get(target.ghost))?.trust, "quarantined");
    const records = await audits();
    assert.deepEqual(reasons(records), ["agent_card_verified", "agent_card_untrusted"]);
    const { fingerprint } = AgentCardAudit.parse(records[1]).target;
    assert.equal(fingerprint, target.fingerprint);
  });

  it("a target that is still configured, or already quarantined, is left unchanged at the start [AGT-1]", async (t) => {
    const { ledger, gate, target, audits } = await gateFixture(t);
    await gate.check(target);
    await gate.revokeMissing(new Map([[target.ghost, target]]));
    assert.equal((await ledger.targets.get(target.ghost))?.trust, "verified");
    assert.equal((await audits()).length, 1);
  });

  for (const status of [404, 429, 500, 503]) {
    it(`a card that cannot be fetched (${status}) leads to no decision, and is fetched with growing waits [AGT-2]`, async (t) => {
      const { ledger, server, clock, gate, target, audits } = await gateFixture(t);
      server.answer = (_request, response) => response.writeHead(status).end();
      const waits: number[] = [];
      for (let round = 0; round < 9; round++) {
        const decision = await gate.check(target);
        assert.ok(decision.trust === "unknown");
        waits.push(decision.retryAfterMs);
        await clock.advance(decision.retryAfterMs - 1);
        assert.deepEqual(await gate.check(target), { trust: "unknown", retryAfterMs: 1 });
        await clock.advance(1);
      }
      assert.equal(server.requests.length, 9);
      assert.deepEqual(waits, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]);
      assert.deepEqual(await audits(), []);
      assert.equal(await ledger.targets.get(target.ghost), undefined);
      server.answer = json(GOOD);
      assert.equal((await gate.check(target)).trust, "verified");
    });
  }

  it("a verified decision stays until it expires when a refresh cannot fetch the card", async (t) => {
    const { server, clock, gate, target } = await gateFixture(t);
    await gate.check(target);
    server.answer = (_request, response) => response.writeHead(503).end();
    await clock.advance(4 * MINUTE);
    assert.equal((await gate.refresh(target)).trust, "verified");
    assert.equal((await gate.check(target)).trust, "verified");
    await clock.advance(MINUTE);
    assert.equal((await gate.check(target)).trust, "unknown");
  });

  it("a verified decision ends at once when a refresh finds a forged card", async (t) => {
    const { server, gate, target } = await gateFixture(t);
    await gate.check(target);
    server.answer = json(FORGED);
    assert.deepEqual(await gate.refresh(target), QUARANTINED);
    assert.deepEqual(await gate.check(target), QUARANTINED);
  });

  it("concurrent questions fetch the card once", async (t) => {
    const { server, gate, target } = await gateFixture(t);
    const decisions = await Promise.all(Array.from({ length: 20 }, () => gate.check(target)));
    assert.ok(decisions.every(({ trust }) => trust === "verified"));
    assert.equal(server.requests.length, 1);
  });

  it("a decision is neither used nor recorded when the pin was revoked meanwhile [AGT-1]", async (t) => {
    const { ledger, server, gate, target, audits } = await gateFixture(t);
    const asked = Promise.withResolvers<() => void>();
    server.answer = (request, response) => asked.resolve(() => json(GOOD)(request, response));
    const pending = gate.check(target);
    const answer = await asked.promise;
    assert.deepEqual(
      await gate.check(agentTarget(undefined, { cardUrl: target.entry.cardUrl })),
      QUARANTINED,
    );
    answer();
    assert.equal((await pending).trust, "unknown");
    assert.equal((await ledger.targets.get(target.ghost))?.trust, "quarantined");
    assert.deepEqual(reasons(await audits()), ["agent_card_untrusted"]);
  });

  it("a decision is not used when the pin was revoked while it was recorded, and not recorded last [AGT-1]", async (t) => {
    const { ledger, options, target } = await gateFixture(t);
    let revoked: Promise<unknown> | undefined;
    const record: typeof ledger.targets.record = (...decided) => {
      revoked ??= gate.check(agentTarget(undefined, { cardUrl: target.entry.cardUrl }));
      return ledger.targets.record(...decided);
    };
    const gate = createCardTrustGate({ ...options, ledger: { targets: { ...ledger.targets, record } } });
    assert.equal((await gate.check(target)).trust, "unknown");
    assert.deepEqual(await revoked, QUARANTINED);
    assert.equal((await ledger.targets.get(target.ghost))?.trust, "quarantined");
  });

  it("a check fails when the ledger is down, and the next check decides anew", async (t) => {
    const { ledger, options, target } = await gateFixture(t);
    let down = true;
    const flaky = {
      targets: {
        ...ledger.targets,
        record: (...decided: Parameters<typeof ledger.targets.record>) =>
          down ? Promise.reject(new Error("down")) : ledger.targets.record(...decided),
      },
    };
    const gate = createCardTrustGate({ ...options, ledger: flaky });
    await assert.rejects(gate.check(target), /down/);
    down = false;
    assert.equal((await gate.check(target)).trust, "verified");
  });
});
