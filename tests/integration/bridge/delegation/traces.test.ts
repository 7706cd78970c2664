import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { createTraces } from "../../../../src/bridge/delegation/traces.ts";
import { systemRandom } from "../../../../src/domain/clock.ts";
import { delegationSuite } from "../../../support/delegation-suite.ts";
import { completes } from "../../../support/fault-agent-behaviour.ts";
import { httpServer } from "../../../support/http-server.ts";

interface ExportedSpan {
  readonly name: string;
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly status?: { readonly code?: number };
  readonly attributes: readonly { readonly key: string; readonly value: { readonly stringValue?: string } }[];
}

/** An OpenTelemetry collector that keeps what it was sent. */
async function collector(t: TestContext, status = 200) {
  const server = await httpServer(t);
  const bodies: string[] = [];
  server.answer = (request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      bodies.push(Buffer.concat(chunks).toString());
      response.writeHead(status, { "content-type": "application/json" }).end("{}");
    });
  };
  const spans = (): readonly ExportedSpan[] =>
    bodies.flatMap((body) =>
      (
        JSON.parse(body) as { resourceSpans: { scopeSpans: { spans: ExportedSpan[] }[] }[] }
      ).resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap((scope) => scope.spans)),
    );
  return { url: `${server.url}/v1/traces`, bodies, spans };
}

const attributesOf = (span: ExportedSpan) =>
  Object.fromEntries(span.attributes.map(({ key, value }) => [key, value.stringValue]));

describe("traces", () => {
  const setUpDelegation = delegationSuite();

  it("a delegation is one span, and its agent's calls and events are children of it, without content [OPS-2]", async (t) => {
    const { url, bodies, spans } = await collector(t);
    const { agent, harness, admit } = await setUpDelegation(t);
    agent.behaviour.plan = completes("the answer");
    const traces = createTraces(url, "example.org", systemRandom);
    Object.assign(harness.deps, { traces });
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined);
    await traces.close();

    const sentToAgent = new Set(agent.requests.map(({ traceparent }) => traceparent));
    assert.equal(sentToAgent.size, 1);
    const [, traceId, spanId] = String([...sentToAgent][0]).split("-");
    const found = spans();
    assert.deepEqual(new Set(found.map((span) => span.traceId)), new Set([traceId]));
    const [delegation, ...others] = found.filter((span) => span.parentSpanId === undefined);
    assert.deepEqual(others, []);
    assert.ok(delegation);
    assert.equal(delegation.spanId, spanId, "the span that the agent was told");
    assert.deepEqual(attributesOf(delegation), {
      "drawbridge.agent": "docs",
      "drawbridge.delegation": row.id,
      "drawbridge.state": "completed",
      "drawbridge.stage": "reply",
      "drawbridge.reason": "answered",
    });
    const children = found.filter((span) => span.parentSpanId !== undefined);
    assert.deepEqual(new Set(children.map((span) => span.parentSpanId)), new Set([spanId]));
    const names = children.map(({ name }) => name);
    assert.ok(names.includes("a2a send"), String(names));
    assert.equal(names.filter((name) => name === "matrix send").length, 1);
    for (const child of children) {
      assert.ok(BigInt(child.startTimeUnixNano) >= BigInt(delegation.startTimeUnixNano));
      assert.ok(BigInt(child.endTimeUnixNano) <= BigInt(delegation.endTimeUnixNano));
      assert.equal(child.status?.code ?? 0, 0);
    }
    for (const content of ["prompt of", "the answer", row.room, row.event, "@alice", "Bearer"]) {
      assert.equal(bodies.join("").includes(content), false, content);
    }
  });

  it("a call that failed is marked as an error, and so is a delegation that failed", async (t) => {
    const { url, spans } = await collector(t);
    const { agent, harness, admit } = await setUpDelegation(t);
    agent.fault("send", { kind: "huge" });
    const traces = createTraces(url, "example.org", systemRandom);
    Object.assign(harness.deps, { traces });
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined);
    await traces.close();
    assert.equal(row.outcome?.state, "failed");
    const ERROR = 2;
    assert.deepEqual(
      spans().map(({ name, status }) => [name, status?.code]),
      [
        ["a2a send", ERROR],
        ["delegation", ERROR],
      ],
    );
  });

  for (const [how, status] of [
    ["is away", undefined],
    ["refuses", 500],
  ] as const) {
    it(`a collector that ${how} changes no answer and does not hold up the end of the process`, async (t) => {
      const url = status === undefined ? "http://127.0.0.1:9/v1/traces" : (await collector(t, status)).url;
      const { agent, harness, admit } = await setUpDelegation(t);
      agent.behaviour.plan = completes("the answer");
      const traces = createTraces(url, "example.org", systemRandom);
      Object.assign(harness.deps, { traces });
      const row = await admit();
      harness.worker().start();
      await harness.until(() => row.outcome !== undefined);
      assert.equal(row.outcome?.reason, "answered");
      const started = process.hrtime.bigint();
      await traces.close();
      assert.ok(Number(process.hrtime.bigint() - started) / 1e9 < 10);
    });
  }
});
