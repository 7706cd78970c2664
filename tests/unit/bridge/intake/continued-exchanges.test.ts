import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { contextOf } from "../../../../src/bridge/intake/continued-exchanges.ts";
import type { MessageEvent } from "../../../../src/bridge/intake/read-events.ts";
import type { Subject } from "../../../../src/bridge/ledger/admission-types.ts";
import { namedTarget } from "../../../support/agents.ts";
import { event, room, T0 } from "../../../support/ledger.ts";

describe("the context that a message continues", () => {
  const target = namedTarget("docs");
  const subject = {
    ...{ event: event("answer"), room: room("r"), purpose: "reply", ghost: target.ghost },
    ...{ targetFingerprint: target.fingerprint, contextId: "c1", endedAt: T0, endedBy: "answered" },
    sender: "@alice:a.test",
  } as Subject;
  const message = {
    ...{ room: room("r"), inReplyTo: event("answer"), threadRoot: undefined, sender: "@alice:a.test" },
  } as MessageEvent;

  it("is that of the agent as it was pinned then, and of no other identity of it [DEL-6] [AGT-1]", () => {
    assert.equal(contextOf(message, target, [subject], T0 - 1), "c1");
    const pinnedAnew = { ...target, fingerprint: "sha256:another" };
    assert.equal(contextOf(message, pinnedAnew, [subject], T0 - 1), undefined);
  });

  it("is that of the person who asked, and of nobody else [DEL-6]", () => {
    const other = { ...message, sender: "@bob:a.test" } as MessageEvent;
    assert.equal(contextOf(other, target, [subject], T0 - 1), undefined);
  });
});
