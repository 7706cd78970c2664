import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { answerIn, contextOf, endedQuestion } from "../../../../src/bridge/intake/continued-exchanges.ts";
import type { MessageEvent } from "../../../../src/bridge/intake/read-events.ts";
import type { NewAnswer, OpenQuestion, Subject } from "../../../../src/bridge/ledger/admission-types.ts";
import { namedTarget } from "../../../support/agents.ts";
import { event, room, T0 } from "../../../support/ledger.ts";

describe("what a message continues", () => {
  const target = namedTarget("docs");
  const subject = {
    ...{ event: event("answer"), room: room("r"), purpose: "reply", ghost: target.ghost },
    ...{ targetFingerprint: target.fingerprint, contextId: "c1", endedAt: T0, endedBy: "answered" },
    sender: "@alice:a.test",
  } as Subject;
  const message = {
    ...{ room: room("r"), inReplyTo: event("answer"), threadRoot: undefined, sender: "@alice:a.test" },
  } as MessageEvent;

  it("is the context of the agent as it was pinned then, and of no other identity of it [DEL-6] [AGT-1]", () => {
    assert.equal(contextOf(message, target, [subject], T0 - 1), "c1");
    assert.equal(contextOf(message, target, [{ ...subject, endedAt: undefined }], T0 - 1), "c1");
    const pinnedAnew = { ...target, fingerprint: "sha256:another" };
    assert.equal(contextOf(message, pinnedAnew, [subject], T0 - 1), undefined);
  });

  it("is the context of the person who asked, in the same room, and of nobody else [DEL-6]", () => {
    const other = { ...message, sender: "@bob:a.test" } as MessageEvent;
    assert.equal(contextOf(other, target, [subject], T0 - 1), undefined);
    const elsewhere = { ...message, room: room("other") } as MessageEvent;
    assert.equal(contextOf(elsewhere, target, [subject], T0 - 1), undefined);
  });

  it("is neither a question that was answered just now, nor one that ended with an answer [DEL-6]", () => {
    const said = { ...message, body: "yes", mentions: [] } as unknown as MessageEvent;
    const own = { delegation: "1", said: [event("answer")], earlier: [], options: [] };
    const open = { ...subject, ...own } as unknown as OpenQuestion;
    const answer = (answered: NewAnswer[]) =>
      answerIn(
        said,
        [open],
        answered,
        () => undefined,
        () => true,
      );
    const first = answer([]);
    assert.ok(first);
    assert.equal(answer([first]), undefined);
    const late: Subject = { ...subject, purpose: "question", endedBy: "input_wait_elapsed" };
    assert.equal(endedQuestion(said, [late]), late);
    assert.equal(endedQuestion(said, [{ ...late, endedBy: "answered" }]), undefined);
  });
});
