import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { AskResult } from "../../../../lab/ask/ask.ts";
import { timelineOf } from "../../../../lab/ask/timeline.ts";
import { NO_COLOURS, paletteFor } from "../../../../lab/progress.ts";
import {
  ATTEMPT_PLANES,
  ATTEMPTS,
  type Attempt,
  type Refusal,
} from "../../../../lab/proof/outsider-attempts.ts";
import { failuresOf, type Proof } from "../../../../lab/proof/proof.ts";
import { renderProof } from "../../../../lab/proof/render.ts";
import { PLANE_NAMES } from "../../../../src/federation/plane-order.ts";
import { type EvidenceItem, evidenceItem } from "../../../../src/records/format/evidence-item.ts";
import { assertGolden } from "../../../support/golden.ts";
import { paperLab } from "../paper-lab.ts";

const SENT_AT = Date.UTC(2026, 10, 21, 9, 0, 0);
const at = (ms: number) => new Date(SENT_AT + ms).toISOString();

function answered(from: "org-a" | "org-b", publisher: "org-a" | "org-b", encrypted = false): AskResult {
  const server = (name: string) => `${name}.test:20003`;
  const view = (answeredMs: number) => ({
    text: "`guide.md` — **Guide**\n\n> It is as it is.",
    eventIds: ["$answer"],
    encrypted,
    questionArrivedAt: SENT_AT + 60,
    answerArrivedAt: SENT_AT + answeredMs,
  });
  return {
    asker: `@alice:${server(from)}`,
    ghost: `@agent_${publisher}-docs-qa:${server(from)}`,
    room: {
      ...{ roomId: "!room", encrypted, createdBy: publisher },
      alias: `#shared${encrypted ? "-encrypted" : ""}:${server(publisher)}`,
    },
    question: "How is it?",
    questionEventId: "$question",
    sentAt: SENT_AT,
    sendAnsweredAt: SENT_AT + 20,
    views: { "org-a": view(from === "org-a" ? 200 : 260), "org-b": view(from === "org-b" ? 200 : 260) },
    audit: {
      schema: "svc.delegation.v1",
      time: at(180),
      outcome: "completed",
      terminal_stage: "reply",
      terminal_reason: "answered",
      a2a_attempted: true,
      target: { agent: `${publisher}-docs-qa`, ghost: "@agent", fingerprint: "none", agent_version: "1.0.0" },
      room_id: "!room",
      event_id: "$question",
      sender: `@alice:${server(from)}`,
      ingress: "transaction",
      admitted_at: at(30),
      accepted_at: at(110),
      reply_event_id: "$answer",
    },
    answeredAt: SENT_AT + 150,
    gateway: {
      start_time: at(70),
      azp: `${from}-bridge`,
      route: "invoke:docs-qa",
      code: 200,
      details: "via_upstream",
      duration_ms: 35,
    },
  };
}

const EXPECTED: Readonly<Record<Attempt, Refusal["expected"]>> = {
  federation_send: 403,
  join: 403,
  room_acl: "denied",
  border: "denied",
  forged_card: "rejected",
  token: 401,
  foreign_token: 401,
  unadmitted_client: 403,
};
const REFUSALS: Refusal[] = ATTEMPTS.flatMap((attempt) =>
  (["org-a", "org-b"] as const).map((organisation) => {
    const expected = EXPECTED[attempt];
    const layer = { expected: "transport", answered: "transport" } as const;
    return {
      ...{ attempt, at: organisation, expected, received: expected, code: "M_FORBIDDEN" },
      ...(ATTEMPT_PLANES[attempt] === "transport" ? { layer } : {}),
    };
  }),
);
const PASSED = [
  ["transport", "federation_send", "homeserver"],
  ["rooms", "make_join", "homeserver"],
  ["border", "invite", "homeserver"],
  ["card", "card_fetch", "gateway"],
  ["gateway", "token_request", "issuer"],
  ["gateway", "invoke", "agent"],
] as const;
const passed = (partner: string): EvidenceItem[] =>
  PASSED.map(([plane, probe, layer]) =>
    evidenceItem({
      ...{ schema: "svc.federation.evidence_item.v1", plane, partner, probe, layer },
      ...{ vantage: "partner", subject: null, verdict: "open", status: 200, reason: null },
      ...{ references: [], at: at(0), duration_ms: 5 },
    }),
  );
const PASSAGES = { "org-a": passed("org-b.test:20012"), "org-b": passed("org-a.test:20003") };
const ASKED = { "org-a": answered("org-a", "org-b"), "org-b": answered("org-b", "org-a") };
const ENCRYPTED = answered("org-b", "org-a", true);
const FOUND = { asked: ASKED, encrypted: ENCRYPTED, passages: PASSAGES, refusals: REFUSALS };
const PROOF: Proof = { ...FOUND, failures: [] };
const OPENING = { headline: 'The lab "default" is running.', tookMs: 12_345 };

describe("the proof of fed:up", () => {
  it("the summary of fed:up reads as the golden file says", () => {
    assertGolden("lab/summary.txt", renderProof(paperLab(), PROOF, OPENING, NO_COLOURS));
  });

  it("hops are listed in the order in which they happened", () => {
    const hops = timelineOf(ASKED["org-b"], "org-b", "org-a");
    const times = hops.map((hop) => hop.atMs);
    assert.deepEqual(
      times,
      times.toSorted((a, b) => a - b),
    );
    assert.deepEqual(times, [0, 20, 30, 60, 70, 105, 110, 150, 180, 200, 260]);
  });

  it("a cause is listed before its effect when both happened at one moment, whatever the programs' clocks say", () => {
    const result = ASKED["org-b"];
    const { audit, gateway } = result;
    assert.ok(gateway !== null);
    const listed = (changed: Partial<AskResult>) =>
      timelineOf({ ...result, ...changed }, "org-b", "org-a").map(({ what }) => what);
    // The gateway's clock a little behind, the bridge's acknowledgement by the homeserver's a little ahead.
    const skewed = listed({
      gateway: { ...gateway, start_time: at(25) },
      audit: { ...audit, accepted_at: at(24), time: at(140) },
      answeredAt: result.sentAt - 1,
    });
    const order = [
      /question is sent/,
      /bridge has recorded it/,
      /gateway lets it in/,
      /agent has accepted it/,
      /homeserver has the answer/,
    ].map((pattern) => skewed.findIndex((what) => pattern.test(what)));
    assert.deepEqual(
      order,
      order.toSorted((a, b) => a - b),
      skewed.join("\n"),
    );
    assert.ok(!order.includes(-1));
    const ended = listed({ audit: { ...audit, time: at(149) } });
    const place = (pattern: RegExp) => ended.findIndex((what) => pattern.test(what));
    assert.ok(place(/delegation has ended/) > place(/homeserver has the answer/));
    const odd = listed({ audit: { ...audit, accepted_at: at(-5_000) } });
    assert.match(odd[0] ?? "", /agent has accepted it/, "what is clearly earlier is not hidden");
  });

  it("a proof that holds has no failures", () => {
    assert.deepEqual(failuresOf(FOUND), []);
  });

  it("org-c being let in anywhere is a failure of the proof [NEG-1]", () => {
    for (const [index, refusal] of REFUSALS.entries()) {
      const changed = REFUSALS.with(index, { ...refusal, received: 200 });
      assert.equal(failuresOf({ ...FOUND, refusals: changed }).length, 1, refusal.attempt);
    }
  });

  it("org-c being refused by another layer than the summary says is a failure of the proof [NEG-1]", () => {
    for (const [index, refusal] of REFUSALS.entries()) {
      if (refusal.layer === undefined) continue;
      for (const answered of ["room_acl", undefined] as const) {
        const changed = REFUSALS.with(index, { ...refusal, layer: { ...refusal.layer, answered } });
        const [failure] = failuresOf({ ...FOUND, refusals: changed });
        assert.match(failure ?? "", /expected 403 by transport, received 403 by (room_acl|nobody known)$/);
      }
    }
  });

  it("org-c is tried on every one of the five planes [NEG-1]", () => {
    assert.deepEqual([...new Set(Object.values(ATTEMPT_PLANES))].sort(), [...PLANE_NAMES].sort());
  });

  it("a plane that the partner does not pass, or for which there is no observation, is a failure of the proof [LAB-1]", () => {
    for (const plane of PLANE_NAMES) {
      const incomplete = PASSAGES["org-a"].filter((item) => item.plane !== plane);
      const closed = PASSAGES["org-a"].map((item) =>
        item.plane === plane ? { ...item, verdict: "closed" as const } : item,
      );
      for (const items of [incomplete, closed]) {
        const failures = failuresOf({ ...FOUND, passages: { ...PASSAGES, "org-a": items } });
        assert.equal(failures.length, 1);
        assert.match(failures[0] ?? "", new RegExp(`org-b does not pass plane ., ${plane}, at org-a`));
      }
    }
  });

  it("a question that was not answered, or a view that differs, is a failure of the proof [LAB-1]", () => {
    const good = ASKED["org-b"];
    const broken: AskResult[] = [
      { ...good, audit: { ...good.audit, outcome: "failed", terminal_reason: "agent_unavailable" } },
      { ...good, views: { ...good.views, "org-a": { ...good.views["org-a"], text: null } } },
      { ...good, views: { ...good.views, "org-a": { ...good.views["org-a"], text: "another" } } },
      { ...good, gateway: null },
      { ...good, gateway: good.gateway === null ? null : { ...good.gateway, azp: "org-c-bridge" } },
    ];
    for (const result of broken) {
      const asked = { ...ASKED, "org-b": result };
      const failures = failuresOf({ ...FOUND, asked });
      assert.notEqual(failures.length, 0);
      const text = renderProof(paperLab(), { ...PROOF, asked, failures }, OPENING, NO_COLOURS);
      for (const failure of failures) assert.ok(text.includes(failure));
    }
  });

  it("an answer that came unencrypted in the encrypted room, or the reverse, is a failure of the proof [LAB-1]", () => {
    const changed = (result: AskResult, encrypted: boolean): AskResult => ({
      ...result,
      views: { ...result.views, "org-a": { ...result.views["org-a"], encrypted } },
    });
    const unsealed = failuresOf({ ...FOUND, encrypted: changed(ENCRYPTED, false) });
    assert.deepEqual(unsealed, ["the answer to org-b in the encrypted room came unencrypted to org-a"]);
    const sealed = failuresOf({ ...FOUND, asked: { ...ASKED, "org-b": changed(ASKED["org-b"], true) } });
    assert.deepEqual(sealed, ["the answer to org-b came encrypted to org-a"]);
  });

  it("colours are for terminals only, and not when NO_COLOR is set", () => {
    assert.equal(paletteFor({ isTTY: false }, {}).bold("x"), "x");
    assert.equal(paletteFor({ isTTY: true }, { NO_COLOR: "1" }).bold("x"), "x");
    assert.notEqual(paletteFor({ isTTY: true }, {}).bold("x"), "x");
  });
});
