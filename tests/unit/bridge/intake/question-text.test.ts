import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { promptOf } from "../../../../src/bridge/intake/question-text.ts";
import type { EventId, GhostMxid } from "../../../../src/domain/identifiers.ts";

const GHOST = "@agent_docs:a.test" as GhostMxid;
const plain = (body: string) =>
  promptOf({ body, inReplyTo: undefined, threadRoot: undefined }, GHOST, "Docs of A");
const reply = (body: string) =>
  promptOf({ body, inReplyTo: "$e" as EventId, threadRoot: undefined }, GHOST, undefined);

describe("prompt", () => {
  it("a leading mention is not part of the prompt", () => {
    assert.equal(plain("@agent_docs:a.test: when?"), "when?");
    assert.equal(plain("agent_docs, when?"), "when?");
    assert.equal(plain("Docs of A when?"), "when?");
    assert.equal(plain("docs of a:  when?\nor not"), "when?\nor not");
    assert.equal(plain("agent_docsabc when?"), "agent_docsabc when?");
    assert.equal(plain("Docs of A"), "Docs of A", "nothing but the mention asks the mention");
  });

  it("a reply's quoted fallback is dropped, and a person's own quotation stays", () => {
    assert.equal(reply("> <@bob:a.test> earlier\n> more\n\nand now?"), "and now?");
    assert.equal(reply("> * <@bob:a.test> waves\n\nand now?"), "and now?");
    assert.equal(
      plain("> The quay is closed.\n\nIs this still true?"),
      "> The quay is closed.\n\nIs this still true?",
    );
    assert.equal(reply("> The quay is closed.\nStill?"), "> The quay is closed.\nStill?");
    assert.equal(reply("> <@bob:a.test> earlier\n"), "> <@bob:a.test> earlier", "never an empty question");
  });
});
