// Who answered a probe, told apart by code and body; and what may never be called closed.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import {
  homeserverRefusal,
  notConfigured,
  observe,
  readCardAnswer,
  readHomeserverAnswer,
  readInvokeAnswer,
  readTokenAnswer,
} from "../../../../src/federation/probes/read-answers.ts";
import { wasNotTried } from "../../../../src/records/conditions/evaluate.ts";
import { evidenceItem } from "../../../../src/records/format/evidence-item.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const plain = (status: number, text = "") => ({ status, contentType: "text/plain", text });
const json = (status: number, value: unknown) => ({
  status,
  contentType: "application/json; charset=utf-8",
  text: JSON.stringify(value),
});
const matrix = (status: number, errcode?: string, error?: string) => ({
  status,
  errcode,
  body: { ...(errcode === undefined ? {} : { errcode }), ...(error === undefined ? {} : { error }) },
});

describe("answers of real parts", () => {
  it("no code in an answer makes a probe one that was left out [OFF-4]", () => {
    for (const code of ["not_applicable:target_has_left", "not_configured:client"]) {
      const answers = [
        readTokenAnswer(json(500, { error: code })),
        ...[500, 403].map((status) => readHomeserverAnswer(matrix(status, code, code))),
      ];
      assert.deepEqual(
        answers.map(({ reason }) => reason),
        [null, null, null],
      );
    }
  });

  it("readTokenAnswer says closed when the client is refused, and unknown when the request is [OFF-4]", () => {
    const verdicts = [
      [json(200, { access_token: "t" }), "open", "token_issued"],
      [json(401, { error: "invalid_client" }), "closed", "invalid_client"],
      [json(400, { error: "unauthorized_client" }), "closed", "unauthorized_client"],
      [json(400, { error: "invalid_target" }), "unknown", "invalid_target"],
      [json(500, { error: "invalid_client" }), "unknown", "invalid_client"],
      [json(200, {}), "unknown", null],
      [plain(401, "who are you"), "unknown", null],
    ] as const;
    for (const [answer, verdict, reason] of verdicts) {
      const found = readTokenAnswer(answer);
      assert.deepEqual([found.verdict, found.reason, found.layer], [verdict, reason, "issuer"]);
    }
  });

  it("readInvokeAnswer says closed for the gateway's own refusals, unknown for those that an agent may have made, and open when the agent or the quota answers [OFF-4]", () => {
    const verdicts = [
      [plain(403, "RBAC: access denied"), "closed", "gateway", "rbac_access_denied"],
      [plain(401, "Jwt is missing"), "closed", "gateway", "jwt_missing"],
      [plain(401, "Jwt is expired"), "closed", "gateway", "jwt_expired"],
      [plain(401, "Jwt verification fails"), "closed", "gateway", "jwt_refused"],
      [plain(403, "Audiences in Jwt are not allowed"), "closed", "gateway", "jwt_refused"],
      [plain(401, "Jwks doesn't have key to match kid or alg from Jwt"), "closed", "gateway", "jwt_refused"],
      [plain(404), "closed", "gateway", "no_route"],
      [plain(401, "authentication failure: no bearer token found"), "closed", "gateway", "unauthorized"],
      [plain(403, "authorization failed"), "closed", "gateway", "forbidden"],
      [plain(404, "route not found"), "closed", "gateway", "no_route"],
      [plain(429, "local_rate_limited"), "open", "gateway", "rate_limited"],
      [json(200, { jsonrpc: "2.0", error: { code: -32001 } }), "open", "agent", "answered"],
      [json(404, { detail: "no such path" }), "open", "agent", "answered"],
      [json(401, { jsonrpc: "2.0", error: { code: -32001 } }), "unknown", "gateway_or_agent", "unauthorized"],
      [json(403, { detail: "not yours" }), "unknown", "gateway_or_agent", "forbidden"],
      [plain(401), "unknown", "gateway_or_agent", "unauthorized"],
      [plain(401, "Jwks remote fetch is failed"), "unknown", "gateway_or_agent", "unauthorized"],
      [plain(403, "<h1>403 Forbidden</h1>"), "unknown", "gateway_or_agent", "forbidden"],
      [plain(200, "RBAC: access denied"), "unknown", "gateway_or_agent", null],
      [plain(503, "no healthy upstream"), "unknown", "gateway_or_agent", null],
      [plain(200, "hello"), "unknown", "gateway_or_agent", null],
    ] as const;
    for (const [answer, verdict, layer, reason] of verdicts) {
      const found = readInvokeAnswer(answer);
      assert.deepEqual([found.verdict, found.layer, found.reason], [verdict, layer, reason]);
    }
    assert.equal(readCardAnswer(plain(404)).verdict, "closed");
    assert.equal(readCardAnswer(json(200, {})).verdict, "open");
    assert.equal(readCardAnswer(plain(503)).verdict, "unknown");
  });

  it("homeserverRefusal distinguishes transport, border, room ACL, ban and the room's own rules [OFF-4]", () => {
    const answers = [
      [matrix(403, "M_FORBIDDEN", "Federation denied with b.test."), "closed", "transport"],
      [matrix(403, "M_FORBIDDEN", "Server is banned from room"), "closed", "room_acl"],
      [matrix(403, "M_FORBIDDEN", "You are banned from this room"), "closed", "room_ban"],
      [matrix(403, "M_FORBIDDEN", "Host not in room."), "closed", "room_membership"],
      [matrix(403, "M_FORBIDDEN", "This event is not allowed in this context"), "closed", "border"],
      [matrix(403, "M_UNKNOWN", "M_FORBIDDEN"), "closed", "border"],
      [matrix(403, "M_FORBIDDEN", "You are not invited to this room."), "open", "room_rules"],
      [matrix(403, "M_FORBIDDEN", "something that no server is known to say"), "closed", "homeserver"],
      [matrix(200), "open", "homeserver"],
      [matrix(401, "M_UNAUTHORIZED"), "unknown", "homeserver"],
      [matrix(404, "M_NOT_FOUND"), "unknown", "homeserver"],
      [matrix(429, "M_LIMIT_EXCEEDED"), "unknown", "homeserver"],
      [matrix(502, "M_UNKNOWN"), "unknown", "homeserver"],
    ] as const;
    for (const [answer, verdict, layer] of answers) {
      const found = readHomeserverAnswer(answer);
      assert.deepEqual([found.verdict, found.layer], [verdict, layer], JSON.stringify(answer));
    }
  });

  it("the readers say closed only for a refusing status, and pass on no text of an answer [OFF-4]", () => {
    const status = fc.integer({ min: 100, max: 599 });
    fc.assert(
      fc.property(status, fc.string(), fc.string(), (code, text, contentType) => {
        const answer = { status: code, contentType, text };
        const found = [readTokenAnswer(answer), readInvokeAnswer(answer), readCardAnswer(answer)];
        for (const { verdict, reason } of found) {
          if (verdict === "closed") assert.ok([400, 401, 403, 404].includes(code));
          assert.ok(reason === null || /^[A-Za-z0-9._:-]{1,128}$/.test(reason));
        }
        const refusal = homeserverRefusal({ status: code, errcode: text, body: { error: text } });
        if (refusal !== undefined) {
          assert.equal(code, 403);
          assert.ok(refusal.reason === null || /^[A-Za-z0-9._:-]{1,128}$/.test(refusal.reason));
        }
      }),
    );
  });

  it("observe says unknown with the reason when there was no answer or no attempt [OFF-4]", async () => {
    const clock = new ManualClock(0);
    const about = {
      plane: "gateway",
      partner: "b.test",
      probe: "token_request",
      vantage: "partner",
      subject: "b",
    } as const;
    const silent = await observe(about, clock, () =>
      Promise.reject(new DOMException("slow", "TimeoutError")),
    );
    assert.deepEqual([silent.verdict, silent.reason, silent.layer], ["unknown", "timed_out", "network"]);
    const refused = await observe(about, clock, () => Promise.reject(new Error("connect ECONNREFUSED")));
    assert.deepEqual([refused.verdict, refused.reason], ["unknown", "unreachable"]);
    const skipped = await observe(about, clock, () => notConfigured("client"));
    assert.deepEqual([skipped.verdict, skipped.reason], ["unknown", "not_configured:client"]);
    assert.ok(wasNotTried(skipped) && !wasNotTried(silent));
    const odd = await observe(about, clock, () => readTokenAnswer(json(999, {})));
    assert.deepEqual([odd.verdict, odd.status, odd.layer], ["unknown", null, "issuer"]);
  });

  it("evidenceItem refuses a sentence in any field [EVD-1]", () => {
    const item = {
      schema: "svc.federation.evidence_item.v1",
      plane: "rooms",
      partner: "b.test",
      probe: "make_join",
      vantage: "partner",
      subject: "!room:b.test",
      verdict: "closed",
      layer: "room_acl",
      status: 403,
      reason: "server_banned",
      references: [] as string[],
      at: "2026-01-01T00:00:00.000Z",
      duration_ms: 1,
    } as const;
    assert.ok(evidenceItem(item).digest.startsWith("sha256:"));
    const sentence = "meet me at the harbour";
    for (const field of ["partner", "probe", "subject", "layer", "reason", "at"] as const) {
      assert.throws(() => evidenceItem({ ...item, [field]: sentence }), RangeError, field);
    }
    assert.throws(() => evidenceItem({ ...item, references: [sentence] }), RangeError);
  });
});
