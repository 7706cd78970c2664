// Planes 5 and 4 alone, on a real Envoy and a real issuer: each closes what it claims while everybody else's
// calls go on without a failure.
import assert from "node:assert/strict";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { systemClock } from "../../../../src/domain/clock.ts";
import type { EvidenceItem } from "../../../../src/records/format/evidence-item.ts";
import { endGateway, eventually } from "../../../support/gateway.ts";
import { type GatewayDeployment, gatewayDeployment, ORG_B } from "./gateway-deployment.ts";

const CLOSED = { gateway: "closed" } as const;
const CARD_CLOSED = { card: "closed" } as const;

async function opened(t: Parameters<typeof gatewayDeployment>[0]): Promise<GatewayDeployment> {
  const deployment = await gatewayDeployment(t);
  for (const plane of ["gateway", "card"] as const) {
    assert.equal((await deployment.apply(plane)).state, "in_force");
  }
  return deployment;
}

/** Calls one after the other, until it is told to end; every status but 200 is kept. */
function traffic(call: () => Promise<number>): { end(): Promise<{ calls: number; failures: number[] }> } {
  let isOver = false;
  const failures: number[] = [];
  let calls = 0;
  const done = (async () => {
    while (!isOver) {
      const status = await call().catch(() => 0);
      calls += 1;
      if (status !== 200) failures.push(status);
    }
  })();
  return {
    end: async () => {
      isOver = true;
      await done;
      return { calls, failures };
    },
  };
}

const summary = (items: readonly EvidenceItem[]) =>
  items.map(({ probe, subject, verdict, reason }) => [probe, subject, verdict, reason]);

describe("card and gateway planes on a real Envoy", () => {
  it("plane 5 alone stops a partner with a live token at once, and nobody else loses a call [PLN-5]", async (t) => {
    const deployment = await opened(t);
    const { token: ofB } = await deployment.token("org-b");
    const { token: ofC } = await deployment.token("org-c");
    assert.equal(await deployment.invoke("docs-qa", ofB), 200);
    const others = traffic(() => deployment.invoke("docs-qa", ofC));

    const decidedAt = systemClock.now();
    const applying = deployment.apply("gateway", CLOSED);
    await eventually("the first refusal", async () =>
      (await deployment.invoke("docs-qa", ofB)) === 403 ? true : undefined,
    );
    const refusedAfterMs = systemClock.now() - decidedAt;
    assert.deepEqual(await applying, { state: "in_force", changed: true });
    t.diagnostic(
      `plane 5: first refusal after ${refusedAfterMs} ms, all of it after ${systemClock.now() - decidedAt} ms`,
    );
    assert.ok(refusedAfterMs < 5_000);

    assert.equal(await deployment.invoke("docs-qa", ofB), 403);
    // Nobody else may invoke it: it is as if it never was.
    assert.equal(await deployment.invoke("reports", ofB), 404);
    const refused = await deployment.token("org-b");
    assert.deepEqual([refused.status, refused.error], [401, "invalid_client"]);
    assert.deepEqual([await deployment.card("docs-qa"), await deployment.card("reports")], [200, 200]);

    const desired = deployment.desired("gateway", CLOSED);
    assert.deepEqual(await deployment.planes.gateway.drift(desired), []);
    const items = await deployment.planes.gateway.probe(desired, deployment.partner(desired, "org-b"));
    assert.deepEqual(summary(items), [
      ["callers_in_force", "org-b-client", "closed", "azp_not_admitted"],
      ["issuer_client", "org-b-client", "closed", "client_disabled"],
      ["live_tokens", "org-b-client", "closed", "no_new_tokens"],
    ]);
    const until = Date.parse(items[2]?.references[0]?.replace("live_until=", "") ?? "");
    assert.ok(until > systemClock.now() + 290_000 && until <= systemClock.now() + 302_000);
    const ofOther = await deployment.planes.gateway.probe(desired, deployment.partner(desired, "org-c"));
    assert.deepEqual(
      ofOther.map(({ verdict }) => verdict),
      ["open", "open", "open"],
    );

    assert.deepEqual(await deployment.apply("gateway"), { state: "in_force", changed: true });
    assert.equal(await deployment.invoke("docs-qa", ofB), 200);
    assert.equal((await deployment.token("org-b")).status, 200);
    const { calls, failures } = await others.end();
    t.diagnostic(`${calls} calls of another partner meanwhile`);
    assert.ok(calls > 20);
    assert.deepEqual(failures, []);
  });

  it("closing goes through the gateway first, opening through the issuer first [PLN-5]", async (t) => {
    const deployment = await opened(t);
    const orderOf = async (ofB: Parameters<GatewayDeployment["apply"]>[1]) => {
      deployment.notes.length = 0;
      await deployment.apply("gateway", ofB);
      return deployment.notes.map((note) => /^(?:invocation|the issuer)\b/.exec(note)?.[0]);
    };
    assert.deepEqual(await orderOf(CLOSED), ["invocation", "the issuer"]);
    assert.deepEqual(await orderOf({}), ["the issuer", "invocation"]);
  });

  it("plane 4 alone withdraws what nobody else consumes, and calls go on [PLN-4]", async (t) => {
    const deployment = await opened(t);
    const { token: ofB } = await deployment.token("org-b");
    const { token: ofC } = await deployment.token("org-c");
    deployment.audit("org-b-agent", "accepted");
    const others = traffic(() => deployment.invoke("docs-qa", ofC));
    const sameToo = traffic(() => deployment.invoke("reports", ofB));

    const decidedAt = systemClock.now();
    const applying = deployment.apply("card", CARD_CLOSED);
    await eventually("the withdrawal", async () =>
      (await deployment.card("reports")) === 404 ? true : undefined,
    );
    t.diagnostic(`plane 4: card withdrawn after ${systemClock.now() - decidedAt} ms`);
    assert.deepEqual(await applying, { state: "in_force", changed: true });
    assert.equal(await deployment.card("docs-qa"), 200);
    deployment.audit("org-b-agent", "rejected");

    const desired = deployment.desired("card", CARD_CLOSED);
    assert.deepEqual(await deployment.planes.card.drift(desired), []);
    const items = await deployment.planes.card.probe(desired, deployment.partner(desired, "org-b"));
    assert.deepEqual(summary(items), [
      ["card_fetch", "docs-qa", "open", "consumed_by_others"],
      ["card_fetch", "reports", "closed", "card_withdrawn"],
      ["card_trust", "org-b-agent", "closed", "agent_card_untrusted"],
      ["may_ask", ORG_B, "closed", "not_in_agents_file"],
    ]);

    assert.equal((await deployment.apply("card")).state, "in_force");
    assert.equal(await deployment.card("reports"), 200);
    for (const flow of [others, sameToo]) {
      const { calls, failures } = await flow.end();
      assert.ok(calls > 10);
      assert.deepEqual(failures, []);
    }
  });

  it("an agent that the bridge never checked, and never will, is closed, and is unknown before that [PLN-4]", async (t) => {
    const deployment = await opened(t);
    deployment.audit("another-agent", "accepted");
    const observe = async (ofB: Parameters<GatewayDeployment["apply"]>[1]) => {
      const desired = deployment.desired("card", ofB);
      const items = await deployment.planes.card.probe(desired, deployment.partner(desired, "org-b"));
      return items
        .filter(({ probe }) => probe === "card_trust")
        .map(({ verdict, reason }) => [verdict, reason]);
    };
    assert.deepEqual(await observe({}), [["unknown", "never_decided"]]);
    await deployment.apply("card", CARD_CLOSED);
    assert.deepEqual(await observe(CARD_CLOSED), [["closed", "not_in_agents_file"]]);
  });

  for (const [plane, file] of [
    ["gateway", "gateway/invocation.yaml"],
    ["gateway", "issuer/clients.yaml"],
    ["card", "gateway/publication.yaml"],
    ["card", "bridge/agents.yaml"],
  ] as const) {
    it(`${file} is drift when it was edited by hand, and the edit is undone [PLN-4] [PLN-5]`, async (t) => {
      const deployment = await opened(t);
      const desired = deployment.desired(plane);
      const { planes } = deployment;
      writeFileSync(join(deployment.folder, file), "version: 1\n");
      const drift = await planes[plane].drift(desired);
      assert.deepEqual(
        drift.map(({ kind, subject }) => [kind, subject]),
        [["edited", join(deployment.folder, file)]],
      );
      assert.deepEqual(await deployment.apply(plane), { state: "in_force", changed: true });
      assert.deepEqual(await planes[plane].drift(desired), []);
      rmSync(join(deployment.folder, file));
      assert.deepEqual(
        (await planes[plane].drift(desired)).map(({ kind }) => kind),
        ["missing"],
      );
    });
  }

  it("the issuer is closed all the same when no gateway runs, and the plane is retried [PLN-5]", async (t) => {
    const deployment = await opened(t);
    await endGateway(deployment.gateway);
    const outcome = await deployment.apply("gateway", CLOSED);
    assert.deepEqual(
      [outcome.state, "reason" in outcome && outcome.reason],
      ["deferred", "gateway_not_running"],
    );
    assert.equal((await deployment.token("org-b")).status, 401);
    const desired = deployment.desired("gateway", CLOSED);
    const [inForce] = await deployment.planes.gateway.probe(desired, deployment.partner(desired, "org-b"));
    assert.deepEqual([inForce?.verdict, inForce?.reason], ["unknown", "gateway_not_running"]);
  });

  it("a file that the gateway refuses fails the plane, and the issuer is closed all the same [PLN-5]", async (t) => {
    const deployment = await opened(t);
    const { token: ofC } = await deployment.token("org-c");
    const desired = deployment.desired("gateway", CLOSED);
    const files = new Map(desired.files).set("gateway/invocation.yaml", "version: 1\nagents: 7\n");
    await assert.rejects(
      deployment.planes.gateway.apply({ ...desired, files }, () => undefined),
      {
        code: "gateway_refused",
      },
    );
    assert.equal((await deployment.token("org-b")).status, 401);
    assert.equal(await deployment.invoke("docs-qa", ofC), 200);
  });
});
