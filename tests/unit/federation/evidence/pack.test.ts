// Evidence packs: what of the record streams gets in, that nothing else can, and that every digest tells.
import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, it } from "node:test";
import fc from "fast-check";
import * as z from "zod";
import { EncryptedIntakeAudit } from "../../../../src/bridge/audit/records.ts";
import { sha256Tagged } from "../../../../src/domain/digest.ts";
import {
  deadBy,
  type EvidencePackBody,
  LIMITS,
  packProblems,
  sealPack,
} from "../../../../src/federation/evidence/pack.ts";
import { collectStream, STREAM_NAMES } from "../../../../src/federation/evidence/record-streams.ts";
import { evidenceItem, operatorItem } from "../../../../src/records/format/evidence-item.ts";
import { temporaryFolder, writeFile } from "../../../support/temporary.ts";

const PARTNER = { serverName: "b.test:8449", azp: "org-b-bridge", agents: new Set(["org-b-docs-qa"]) };
const WINDOW = { since: "2026-01-01T00:00:00.000Z", until: "2026-01-02T00:00:00.000Z" };
const AT = "2026-01-01T03:00:00.000Z";
const DIGEST = sha256Tagged("policy");

const violation = {
  schema: "svc_federation_policy_violation",
  reason: "server_not_allowed",
  server: PARTNER.serverName,
  room: "!room:a.test",
  event: "$event",
  policy_digest: DIGEST,
  at: AT,
};
const request = {
  start_time: AT,
  azp: PARTNER.azp,
  route: "invoke:docs-qa",
  code: 403,
  details: "rbac_access_denied_matched_policy[none]",
  flags: "-",
  duration_ms: 1,
  bytes_in: 10,
  bytes_out: 19,
};
const delegation = {
  audit_id: "7",
  schema: "svc.delegation.v1",
  time: AT,
  outcome: "denied",
  terminal_stage: "agent_card",
  terminal_reason: "agent_card_untrusted",
  a2a_attempted: false,
  target: { agent: "docs-qa", ghost: "@agent_docs-qa:a.test", fingerprint: "none", agent_version: null },
  room_id: "!room:a.test",
  event_id: "$question",
  sender: `@bob:${PARTNER.serverName}`,
  ingress: "transaction",
  admitted_at: AT,
  accepted_at: null,
  reply_event_id: null,
};

const unread = {
  ...{ audit_id: "8", schema: "svc.encrypted_intake.v1", time: AT, outcome: "expired" },
  ...{ terminal_reason: "key_wait_elapsed", key_requests: 5, ingress: "transaction", admitted_at: AT },
  ...{ room_id: "!room:a.test", event_id: "$unread", sender: `@bob:${PARTNER.serverName}` },
};

const LINES = { border_violations: violation, gateway_decisions: request, bridge_audit: delegation } as const;

function lines(...values: readonly unknown[]): string {
  return values.map((value) => `${typeof value === "string" ? value : JSON.stringify(value)}\n`).join("");
}

function body(): EvidencePackBody {
  return {
    schema: "svc.federation.evidence.v1",
    made_at: AT,
    window: WINDOW,
    partner: {
      name: "org-b",
      server_name: PARTNER.serverName,
      azp: PARTNER.azp,
      issuer: "https://issuer.b.test",
      key_ids: { server: ["ed25519:a_b"], card: [] },
      classification: "internal",
      contained: true,
    },
    revision: "0".repeat(40),
    closed_planes: ["gateway", "card", "rooms", "border"],
    containment_records: [],
    inside: [],
    outside: [],
    streams: [],
    stream_items: [],
    limits: { ...LIMITS, live_tokens: { longest_life_seconds: 300, dead_by: null } },
  };
}

describe("evidence packs and record streams", () => {
  it("deadBy names a time only where every client is refused and none is still enabled [EVD-1]", () => {
    const found = (probe: string, subject: string, verdict: "open" | "closed" | "unknown", second: number) =>
      operatorItem(Date.parse(AT) + second * 1_000, {
        ...{ plane: "gateway", partner: PARTNER.serverName, probe, subject, verdict, layer: "issuer" },
      });
    const at = (second: number) => new Date(Date.parse(AT) + (second + 300) * 1_000).toISOString();
    const refused = found("issuer_client", PARTNER.azp, "closed", 1);
    const tried = found("token_request", PARTNER.azp, "closed", 2);
    const applicant = found("issuer_client", "applicant", "closed", 3);
    assert.equal(deadBy([refused, tried], PARTNER.azp), at(1));
    // No gateway is managed here: what was tried from outside says nothing of another secret of the client.
    assert.equal(deadBy([tried], PARTNER.azp), null);
    assert.equal(deadBy([refused, tried, applicant], PARTNER.azp), at(3));
    assert.equal(deadBy([], PARTNER.azp), null);
    // The applicant's client alone, a client of before, and an old secret of one that is enabled.
    assert.equal(deadBy([found("issuer_client", PARTNER.azp, "open", 1), applicant], PARTNER.azp), null);
    assert.equal(deadBy([found("token_request", "before", "closed", 1)], PARTNER.azp), null);
    assert.equal(deadBy([found("issuer_client", PARTNER.azp, "open", 1), tried], PARTNER.azp), null);
    assert.equal(deadBy([found("issuer_client", PARTNER.azp, "unknown", 1), tried], PARTNER.azp), null);
  });

  it("collectStream takes the partner's lines in the window, each with the digest of the line [EVD-1]", async (t) => {
    const folder = temporaryFolder(t);
    for (const stream of STREAM_NAMES) {
      const line = LINES[stream];
      const { serverName, azp } = PARTNER;
      const [time, who, like] = {
        border_violations: ["at", { server: "c.test" }, { server: `not-${serverName}` }],
        gateway_decisions: ["start_time", { azp: "org-c" }, { azp: `not-${azp}` }],
        bridge_audit: ["time", { sender: "@eve:c.test" }, { sender: `@eve:not-${serverName}` }],
      }[stream] as [string, object, object];
      const file = join(folder, `${stream}.jsonl`);
      const others = [
        { ...line, ...who },
        { ...line, ...like },
        { ...line, [time]: "2025-12-31T23:59:59.999Z" },
        { ...line, [time]: "2026-01-02T00:00:00.001Z" },
      ];
      const text = `${lines(line, ...others)}{"half":`;
      writeFile(file, text);
      const { summary, items } = await collectStream(stream, file, PARTNER, WINDOW);
      assert.deepEqual(
        { ...summary, bytes: 0 },
        {
          ...{ stream, state: "read", bytes: 0, digest: sha256Tagged(text) },
          ...{ lines: 5, matching: 1, included: 1, refused_lines: 0 },
        },
      );
      assert.equal(items[0]?.line_digest, sha256Tagged(JSON.stringify(line)));
      assert.deepEqual(packProblems(sealPack({ ...body(), stream_items: [...items] })), []);
    }
  });

  it("collectStream takes the record of a partner's encrypted event that nobody could read [EVD-1] [AUD-2]", async (t) => {
    assert.ok(EncryptedIntakeAudit.extend({ audit_id: z.string() }).safeParse(unread).success);
    const file = join(temporaryFolder(t), "audit.jsonl");
    writeFile(file, lines(unread, { ...unread, sender: "@eve:c.test" }));
    const { summary, items } = await collectStream("bridge_audit", file, PARTNER, WINDOW);
    assert.deepEqual([summary.matching, summary.refused_lines], [1, 0]);
    const { room_id: room, event_id: event, sender } = unread;
    assert.deepEqual(items[0]?.facts, {
      ...{ stream: "bridge_audit", schema: unread.schema, audit_id: "8", outcome: "expired", agent: null },
      ...{ reason: "key_wait_elapsed", a2a_attempted: null, room, event, sender, key_id: null },
    });
    assert.deepEqual(packProblems(sealPack({ ...body(), stream_items: [...items] })), []);
  });

  it("collectStream reports a stream that is absent or not operated [EVD-1]", async (t) => {
    const folder = temporaryFolder(t);
    const absent = await collectStream("bridge_audit", join(folder, "none.jsonl"), PARTNER, WINDOW);
    assert.equal(absent.summary.state, "absent");
    assert.equal(
      (await collectStream("bridge_audit", undefined, PARTNER, WINDOW)).summary.state,
      "not_operated",
    );
    assert.equal((await collectStream("bridge_audit", folder, PARTNER, WINDOW)).summary.state, "unreadable");
  });

  it("collectStream counts a line outside its schema, and includes nothing of it [EVD-1] [AUD-2]", async (t) => {
    const folder = temporaryFolder(t);
    const canary = "the tide table of the harbour";
    for (const stream of STREAM_NAMES) {
      const line: Record<string, unknown> = { ...LINES[stream] };
      const spoiled: unknown[] = [{ ...line, body: canary }, canary, "{", "[]", "null", "x".repeat(70_000)];
      spoiled.push(`${JSON.stringify(line)}${" ".repeat(70_000)}`);
      for (const field of Object.keys(line)) spoiled.push({ ...line, [field]: canary });
      for (const field of Object.keys(line)) {
        const { [field]: _gone, ...rest } = line;
        spoiled.push(rest);
      }
      const file = join(folder, `${stream}.jsonl`);
      writeFile(file, lines(...spoiled, line));
      const { summary, items } = await collectStream(stream, file, PARTNER, WINDOW);
      assert.deepEqual([summary.refused_lines, items.length], [spoiled.length, 1], stream);
      const pack = sealPack({ ...body(), streams: [summary], stream_items: [...items] });
      assert.ok(!JSON.stringify(pack).includes("tide"), stream);
    }
  });

  it("collectStream neither fails on random bytes nor includes a line that does not fit [EVD-1]", async (t) => {
    const file = join(temporaryFolder(t), "stream.jsonl");
    const piece = fc.oneof(fc.string(), fc.json(), fc.constant(JSON.stringify(violation)), fc.constant("\n"));
    await fc.assert(
      fc.asyncProperty(fc.array(piece, { maxLength: 12 }), async (pieces) => {
        writeFile(file, pieces.join("\n"));
        const { summary, items } = await collectStream("border_violations", file, PARTNER, WINDOW);
        assert.equal(summary.state, "read");
        assert.ok(items.every(({ line_digest }) => line_digest === sha256Tagged(JSON.stringify(violation))));
        assert.ok(summary.refused_lines + summary.matching <= summary.lines);
      }),
      { numRuns: 60 },
    );
  });

  it("packProblems finds a change anywhere in a pack by a digest, and an unknown member by the schema [EVD-1]", () => {
    const item = evidenceItem({
      schema: "svc.federation.evidence_item.v1",
      ...{ plane: "transport", partner: PARTNER.serverName, probe: "federation_send", vantage: "partner" },
      ...{
        subject: "a.test",
        verdict: "closed",
        layer: "transport",
        status: 403,
        reason: "federation_denied",
      },
      ...{ references: [], at: AT, duration_ms: 3 },
    } as Parameters<typeof evidenceItem>[0]);
    const pack = sealPack({ ...body(), outside: [item] });
    assert.deepEqual(packProblems(JSON.parse(JSON.stringify(pack))), []);
    assert.deepEqual(packProblems({ ...pack, outside: [{ ...item, verdict: "open" }] }), [
      "wrong digest: outside.0",
      "wrong digest: the pack",
    ]);
    assert.deepEqual(packProblems({ ...pack, outside: [] }), ["wrong digest: the pack"]);
    assert.deepEqual(packProblems({ ...pack, closed_planes: [] }), ["wrong digest: the pack"]);
    assert.deepEqual(packProblems({ ...pack, note: "hello" }), ["outside the schema: the pack"]);
    assert.ok(packProblems("nothing").length > 0);
  });

  it("every pack holds both limits, which cannot be left out or reworded [EVD-1]", () => {
    const pack = sealPack(body());
    assert.match(pack.limits.replicated_history, /does not retract history that was replicated/);
    assert.match(pack.limits.user_attribution, /X-User-Id header is attribution, not authentication/);
    assert.equal(pack.limits.live_tokens.longest_life_seconds, 300);
    const limits = { ...pack.limits, user_attribution: "fine" } as unknown as EvidencePackBody["limits"];
    assert.throws(() => sealPack({ ...body(), limits }), RangeError);
  });
});
