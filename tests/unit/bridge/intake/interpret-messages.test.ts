import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { candidatesOf, interpretMessages } from "../../../../src/bridge/intake/interpret-messages.ts";
import { createNamespace } from "../../../../src/bridge/intake/namespace.ts";
import { type MessageEvent, readEvents } from "../../../../src/bridge/intake/read-events.ts";
import type { KnownFacts, Subject } from "../../../../src/bridge/ledger/admission-types.ts";
import type { GhostMxid, ServerName } from "../../../../src/domain/identifiers.ts";
import { event, room, T0 } from "../../../support/ledger.ts";

const NAMESPACE = createNamespace({
  serverName: "a.test" as ServerName,
  ghostPrefix: "agent_",
  senderLocalpart: "drawbridge",
});
const NOTHING_KNOWN: KnownFacts = {
  ...{ forgottenBefore: 0, encryptedRooms: new Set(), ghostsIn: new Map() },
  ...{ speakers: new Map(), partnersIn: new Map(), directWith: new Map() },
  ...{ subjects: [], waiting: [], recentAnswers: [], openQuestions: [] },
};

describe("deriving from a message", () => {
  const docs = "@agent_docs:a.test" as GhostMxid;
  const asCommand = (body: string, html = "", mentioned: readonly string[] = [docs]) => {
    const raw = {
      ...{
        type: "m.room.message",
        event_id: "$c",
        room_id: "!r",
        sender: "@alice:a.test",
        origin_server_ts: T0,
      },
      content: {
        ...{ msgtype: "m.text", body, "m.mentions": { user_ids: mentioned }, formatted_body: html },
        "m.relates_to": { "m.in_reply_to": { event_id: "$q" } },
      },
    };
    const candidates = readEvents([raw]).events.filter((one) => one.type === "message");
    const asked = {
      ...{ candidates, reactions: [], waiting: [], deadline: 0 },
      ...{ plainInEncrypted: false, contextSince: 0 },
    };
    const subject: Subject = {
      ...{ event: event("q"), room: room("r"), purpose: undefined, delegation: "7", source: event("q") },
      ...{ threadRoot: undefined, ghost: docs, sender: "@alice:a.test" as Subject["sender"] },
      ...{ targetFingerprint: "", contextId: undefined, endedAt: undefined, endedBy: undefined },
    };
    const known = { ...NOTHING_KNOWN, subjects: [subject] };
    const { cancels, delegations } = interpretMessages(asked, known, new Map(), NAMESPACE);
    assert.deepEqual(delegations, []);
    return cancels.map(({ delegation }) => delegation);
  };

  it("takes !cancel behind a mention by the name that a card gives for the command [DEL-6]", () => {
    const link = `<a href="https://matrix.to/#/${docs}">Docs · Org A</a>: !cancel`;
    assert.deepEqual(asCommand("Docs · Org A: !cancel", link), ["7"]);
    assert.deepEqual(asCommand("Docs · Org A: !cancel"), []);
  });

  it("takes !cancel behind a ghost's user ID or localpart, in any case, for the command [DEL-6]", () => {
    for (const name of [docs, "@agent_docs", "agent_docs", "Agent_Docs"]) {
      for (const between of [" ", ": ", ",", ":\n", "\t "])
        assert.deepEqual(asCommand(`${name}${between}!cancel`), ["7"], `${name}${between}!cancel`);
      for (const between of ["", " : ", "-", ",, ", ": please "])
        assert.deepEqual(asCommand(`${name}${between}!cancel`), [], `${name}${between}!cancel`);
    }
    assert.deepEqual(asCommand("agent_docs: !cancel", "", ["@agent_doc:a.test", "@agent_docs:b.test"]), []);
  });

  const names = Array.from({ length: 1_000 }, (_, index) => `agent_${index}`).join(" ");
  for (const text of [
    ...[" ".repeat(30_000), "!cancel", `agent_7: ${"x".repeat(30_000)} !cancel`],
    ...[`${names.slice(0, 500)} !cancel`, "AGENT_999!cancel"],
  ]) {
    it(`reads its text a few times, however many ghosts it mentions (${text.length} characters) [INT-7]`, (t) => {
      let reads = 0;
      const { mock: patterns } = t.mock.method(globalThis, "RegExp");
      const mentions = Array.from({ length: 1_000 }, (_, index) => `@agent_${index}:a.test` as GhostMxid);
      const message: MessageEvent = {
        ...{ type: "message", msgtype: "m.text", event: event("q"), room: room("r"), position: 0 },
        ...{ sender: "@mallory:b.test" as MessageEvent["sender"], originServerTs: T0, mentions },
        ...{ threadRoot: undefined, inReplyTo: undefined, replaces: undefined },
        ...{ isAutomated: false, sentAs: undefined, indexDigest: undefined, attachment: undefined },
        get body() {
          reads += 1;
          return text;
        },
      };
      const asked = {
        ...{ candidates: [message], reactions: [], waiting: [], deadline: 0 },
        ...{ plainInEncrypted: false, contextSince: 0 },
      };
      assert.deepEqual(interpretMessages(asked, NOTHING_KNOWN, new Map(), NAMESPACE).delegations, []);
      assert.ok(reads < 10, `${reads} times`);
      assert.ok(patterns.callCount() < 10, `${patterns.callCount()} patterns`);
    });
  }
});

describe("what may ask, answer or cancel", () => {
  it("is no reaction that is marked as automated [INT-6]", () => {
    const reaction = (name: string, marks: object) => ({
      ...{
        type: "m.reaction",
        event_id: `$${name}`,
        room_id: "!r",
        sender: "@bot:a.test",
        origin_server_ts: T0,
      },
      content: { "m.relates_to": { rel_type: "m.annotation", event_id: "$q", key: "❌" }, ...marks },
    });
    const { events } = readEvents([reaction("program", { "m.automated": true }), reaction("person", {})]);
    const { reactions } = candidatesOf(events, NAMESPACE, []);
    assert.deepEqual(
      reactions.map((one) => one.event),
      [event("person")],
    );
  });
});
