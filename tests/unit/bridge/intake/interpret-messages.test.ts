import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { interpretMessages } from "../../../../src/bridge/intake/interpret-messages.ts";
import { createNamespace } from "../../../../src/bridge/intake/namespace.ts";
import type { MessageEvent } from "../../../../src/bridge/intake/read-events.ts";
import type { KnownFacts } from "../../../../src/bridge/ledger/admission-types.ts";
import type { GhostMxid, ServerName } from "../../../../src/domain/identifiers.ts";
import { event, room, T0 } from "../../../support/ledger.ts";

const NAMESPACE = createNamespace({
  serverName: "a.test" as ServerName,
  ghostPrefix: "agent_",
  senderLocalpart: "drawbridge",
});
const NOTHING_KNOWN: KnownFacts = {
  ...{ forgottenBefore: 0, encryptedRooms: new Set(), ghostsIn: new Map(), ghostsGone: new Map() },
  ...{ speakers: new Map(), partnersIn: new Map(), directWith: new Map() },
  ...{ subjects: [], waiting: [], recentAnswers: [], openQuestions: [] },
};

describe("deriving from a message", () => {
  for (const text of [" ".repeat(30_000), "!cancel", `agent_7: ${"x".repeat(30_000)} !cancel`]) {
    it(`reads its text a few times, however many ghosts it mentions (${text.length} characters) [INT-7]`, () => {
      let reads = 0;
      const mentions = Array.from({ length: 1_000 }, (_, index) => `@agent_${index}:a.test` as GhostMxid);
      const message: MessageEvent = {
        ...{ type: "message", msgtype: "m.text", event: event("q"), room: room("r"), position: 0 },
        ...{ sender: "@mallory:b.test" as MessageEvent["sender"], originServerTs: T0, mentions },
        ...{ threadRoot: undefined, inReplyTo: undefined, isEdit: false, replaces: undefined },
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
    });
  }
});
