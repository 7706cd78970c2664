import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { promptOf } from "../../../../src/bridge/intake/question-text.ts";
import { leadingMention } from "../../../../src/bridge/intake/read-events.ts";
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

  it("a leading mention by the name that a card gives, as Element writes it, is not part of the prompt", () => {
    const name = "Docs & <Q> · Org A";
    const link = (href: string) => `<a href="https://matrix.to/#/${href}">Docs &amp; &lt;Q&gt; · Org A</a>`;
    const said = (body: string, formatted_body: unknown) => {
      const leading = leadingMention({ formatted_body });
      return promptOf({ body, inReplyTo: undefined, threadRoot: undefined, leading }, GHOST, undefined);
    };
    for (const html of [
      `${link(GHOST)}: when?`,
      `<p>${link(encodeURIComponent(GHOST))} when?</p>`,
      `<mx-reply><blockquote>${link("@bob:a.test")}</blockquote></mx-reply>${link(GHOST)}: when?`,
    ]) {
      assert.equal(said(`${name}: when?`, html), "when?");
      assert.equal(said(`${name} when?`, html), "when?");
      assert.equal(said(name, html), name);
      assert.equal(said(`${name}x when?`, html), `${name}x when?`);
      assert.equal(said("when?", html), "when?");
    }
    const whole = `${name}: when?`;
    for (const html of [
      `${link("@bob:a.test")}: when?`,
      `See ${link(GHOST)}: when?`,
      `${link("%")}: when?`,
      "<mx-reply>",
      7,
    ])
      assert.equal(said(whole, html), whole);
  });

  it("a long link that never ends is no mention, and is soon read", () => {
    const formatted_body = `<a href="https://matrix.to/#/${"x".repeat(2_500)}`;
    const begun = performance.now();
    for (let n = 0; n < 500; n++) assert.equal(leadingMention({ formatted_body }), undefined);
    assert.ok(performance.now() - begun < 500);
    const tail = {
      formatted_body: `<a href="https://matrix.to/#/${GHOST}?via=a.test&via=b.test">Docs</a>: when?`,
    };
    assert.deepEqual(leadingMention(tail), { user: GHOST, name: "Docs" });
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
