import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { fromJsonRpcErrorResponse, fromRestErrorBody } from "@a2a-js/sdk/errors";
import {
  A2A_FAILURES,
  type A2aFailureKind,
  classify,
  type ExchangeFacts,
} from "../../../../../src/bridge/delegation/a2a/classify-failure.ts";
import { TimeUp } from "../../../../../src/bridge/delegation/a2a/time-limit.ts";
import { FOLLOW_VERDICTS, SEND_VERDICTS } from "../../../../../src/bridge/delegation/retry-or-give-up.ts";
import { TERMINAL_REASONS } from "../../../../../src/bridge/ledger/states.ts";

const NOW = Date.UTC(2026, 0, 1);
const OTHER = new Error("whatever the SDK says");

function facts(known: Partial<ExchangeFacts>): ExchangeFacts {
  return { status: undefined, retryAfter: undefined, fault: undefined, networkCode: undefined, ...known };
}

const rpcError = (code: number) =>
  fromJsonRpcErrorResponse({ jsonrpc: "2.0", id: 1, error: { code, message: "secret words" } });

const restError = (status: number, reason?: string) =>
  fromRestErrorBody(
    {
      message: "secret words",
      details:
        reason === undefined
          ? []
          : [{ "@type": "type.googleapis.com/google.rpc.ErrorInfo", reason, domain: "a2a-protocol.org" }],
    },
    { statusCode: status },
  );

const TABLE: readonly [string, unknown, Partial<ExchangeFacts>, A2aFailureKind][] = [
  ["connection refused", OTHER, { networkCode: "ECONNREFUSED" }, "not_delivered"],
  ["no such host", OTHER, { networkCode: "ENOTFOUND" }, "not_delivered"],
  ["resolver busy", OTHER, { networkCode: "EAI_AGAIN" }, "not_delivered"],
  ["connect time-out", OTHER, { networkCode: "UND_ERR_CONNECT_TIMEOUT" }, "not_delivered"],
  ["unknown certificate", OTHER, { networkCode: "SELF_SIGNED_CERT_IN_CHAIN" }, "not_delivered"],
  ["wrong certificate", OTHER, { networkCode: "ERR_TLS_CERT_ALTNAME_INVALID" }, "not_delivered"],
  ["reset before a response", OTHER, { networkCode: "ECONNRESET" }, "ambiguous"],
  ["closed before a response", OTHER, { networkCode: "UND_ERR_SOCKET" }, "ambiguous"],
  ["no response in time", OTHER, {}, "ambiguous"],
  ["an operation that 0.3 does not have", rpcError(-32_601), {}, "unsupported"],
  ["no body in time", new TimeUp(), { status: 200 }, "ambiguous"],
  ["401", OTHER, { status: 401 }, "unauthenticated"],
  ["403", OTHER, { status: 403 }, "forbidden"],
  ["404", OTHER, { status: 404 }, "not_found"],
  ["410", OTHER, { status: 410 }, "not_found"],
  ["405", OTHER, { status: 405 }, "unsupported"],
  ["429", OTHER, { status: 429 }, "throttled"],
  ["408", OTHER, { status: 408 }, "ambiguous"],
  ["500", OTHER, { status: 500 }, "ambiguous"],
  ["502", OTHER, { status: 502 }, "ambiguous"],
  ["503", OTHER, { status: 503 }, "ambiguous"],
  ["503 with Retry-After", OTHER, { status: 503, retryAfter: "3" }, "not_delivered"],
  ["504", OTHER, { status: 504 }, "ambiguous"],
  ["redirect", OTHER, { status: 302 }, "not_a2a"],
  ["400", OTHER, { status: 400 }, "protocol"],
  ["not A2A at all", OTHER, { status: 200 }, "protocol"],
  ["garbage in a stream", OTHER, { status: 200, fault: "garbage" }, "not_a2a"],
  ["a page", OTHER, { status: 400, fault: "garbage" }, "not_a2a"],
  ["a page that says that nothing is there", OTHER, { status: 404, fault: "garbage" }, "not_found"],
  ["cut off body", OTHER, { status: 200, fault: "broken" }, "ambiguous"],
  ["too long", OTHER, { status: 200, fault: "too_large" }, "too_large"],
  ["too long with a 500", OTHER, { status: 500, fault: "too_large" }, "too_large"],
  ["JSON-RPC internal error", rpcError(-32_603), { status: 200 }, "ambiguous"],
  ["JSON-RPC parse error", rpcError(-32_700), { status: 200 }, "protocol"],
  ["JSON-RPC invalid request", rpcError(-32_600), { status: 200 }, "protocol"],
  ["JSON-RPC method not found", rpcError(-32_601), { status: 200 }, "protocol"],
  ["JSON-RPC invalid params", rpcError(-32_602), { status: 200 }, "protocol"],
  ["task not found", rpcError(-32_001), { status: 200 }, "task_not_found"],
  ["unsupported operation", rpcError(-32_004), { status: 200 }, "unsupported"],
  ["content type not supported", rpcError(-32_005), { status: 200 }, "protocol"],
  ["version not supported", rpcError(-32_009), { status: 200 }, "protocol"],
  ["an error of the agent's own", rpcError(-32_042), { status: 200 }, "agent_error"],
  ["an error of nobody's range", rpcError(7), { status: 200 }, "agent_error"],
  ["an error in a stream", new Error("x", { cause: rpcError(-32_001) }), { status: 200 }, "task_not_found"],
  ["REST task not found", restError(404, "TASK_NOT_FOUND"), { status: 404 }, "task_not_found"],
  ["REST route not found", restError(404), { status: 404 }, "not_found"],
  ["REST 500", restError(500), { status: 500 }, "ambiguous"],
  ["REST error event in a stream", restError(200), { status: 200 }, "ambiguous"],
  ["REST malformed", restError(400, "INVALID_PARAMS"), { status: 400 }, "protocol"],
];

describe("classification of failed calls", () => {
  it("each outcome of HTTP, JSON-RPC or the network is classified as the table says [DEL-7]", async (t) => {
    for (const [name, error, known, kind] of TABLE) {
      await t.test(`${name} is classified as ${kind}`, () => {
        const failure = classify(error, facts(known), NOW);
        assert.equal(failure.kind, kind);
        assert.doesNotMatch(JSON.stringify({ ...failure, message: failure.message }), /secret/);
        assert.equal(failure.cause, undefined);
      });
    }
  });

  it("Retry-After is honoured as seconds and as a date", () => {
    const after = (retryAfter: string) =>
      classify(OTHER, facts({ status: 429, retryAfter }), NOW).retryAfterMs;
    assert.equal(after("7"), 7_000);
    assert.equal(after(new Date(NOW + 90_000).toUTCString()), 90_000);
    assert.equal(after(new Date(NOW - 90_000).toUTCString()), 0);
    assert.equal(after("soon"), undefined);
  });

  it("every failure has a verdict, and every verdict a reason that the ledger knows", () => {
    for (const kind of A2A_FAILURES) {
      for (const verdict of [SEND_VERDICTS[kind], FOLLOW_VERDICTS[kind]]) {
        assert.ok(TERMINAL_REASONS.includes(verdict.reason), kind);
      }
    }
  });
});
