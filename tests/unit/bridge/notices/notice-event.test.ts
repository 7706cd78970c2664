import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { NOTICE_KINDS, NOTICE_REASONS } from "../../../../src/bridge/ledger/states.ts";
import type { DirectoryLine } from "../../../../src/bridge/notices/notice-event.ts";
import { noticeContent } from "../../../../src/bridge/notices/notice-event.ts";
import { DE } from "../../../../src/bridge/texts/de.ts";
import { EN } from "../../../../src/bridge/texts/en.ts";
import { unicodeText } from "../../../support/arbitraries.ts";
import { event, ghost } from "../../../support/ledger.ts";

const context = { texts: EN, readsEncrypted: true, directory: [] } as const;
const facts = { reason: undefined, sourceEventId: undefined, threadRoot: undefined } as const;

describe("the event of a notice", () => {
  it("every kind with every reason is an m.notice of whole sentences that mentions nobody [NOT-1]", () => {
    for (const kind of NOTICE_KINDS) {
      for (const reason of [undefined, ...NOTICE_REASONS]) {
        for (const readsEncrypted of [true, false]) {
          if (kind === "help") continue;
          const content = noticeContent({ ...facts, kind, reason }, { ...context, readsEncrypted });
          assert.equal(content["msgtype"], "m.notice");
          assert.deepEqual(content["m.mentions"], {});
          assert.match(String(content["body"]), /^[A-Z].*\.$/);
          assert.ok(String(content["body"]).length < 400);
        }
      }
    }
  });

  it("a notice answers in the thread of the question, or by a reply, or stands alone [NOT-1]", () => {
    const notice = { ...facts, kind: "rate_limited", reason: "rate_limited" } as const;
    assert.equal(noticeContent(notice, context)["m.relates_to"], undefined);
    const reply = { "m.in_reply_to": { event_id: "$question" } };
    const asked = { ...notice, sourceEventId: event("question") };
    assert.deepEqual(noticeContent(asked, context)["m.relates_to"], reply);
    assert.deepEqual(noticeContent({ ...asked, threadRoot: event("root") }, context)["m.relates_to"], {
      rel_type: "m.thread",
      event_id: "$root",
      is_falling_back: false,
      ...reply,
    });
  });

  it("the notice on missing keys depends on whether encrypted rooms are read [NOT-1]", () => {
    const said = (readsEncrypted: boolean) =>
      String(noticeContent({ ...facts, kind: "keys_missing" }, { ...context, readsEncrypted })["body"]);
    assert.match(said(true), /invite me again/);
    assert.doesNotMatch(said(false), /invite me again|share/);
    assert.match(said(false), /in a room without encryption/);
  });

  const directory = (lines: readonly DirectoryLine[]) =>
    noticeContent({ ...facts, kind: "agent_directory" }, { ...context, directory: lines });

  it("a directory names the server whose agents it lists, because each bridge in a room answers for its own [NOT-1]", () => {
    const partner = "@agent_docs:b.test" as DirectoryLine["ghost"];
    const [own, others] = [ghost("docs"), partner].map(
      (one) => String(directory([{ ghost: one, name: "Docs", available: true }])["body"]).split("\n")[0],
    );
    assert.match(own ?? "", /\ba\.test:$/);
    assert.match(others ?? "", /\bb\.test:$/);
  });

  it("a directory lists each agent, whether it takes questions, and who can repair it otherwise [NOT-1]", () => {
    const { body, formatted_body: html } = directory([
      { ghost: ghost("b"), name: "Docs <b>", available: true },
      { ghost: ghost("a"), name: "Billing", available: false },
    ]);
    assert.equal(
      body,
      "Invite an agent to a room and mention it with your question. Agents of a.test:\n" +
        "- Billing: @agent_a:a.test (not available now: its identity is not verified; whoever runs this bridge can repair that)\n" +
        "- Docs <b>: @agent_b:a.test",
    );
    assert.match(
      String(html),
      /<li><a href="https:\/\/matrix\.to\/#\/%40agent_b%3Aa\.test">Docs &lt;b&gt;<\/a> <code>@agent_b:a\.test<\/code><\/li>/,
    );
  });

  it("a directory says what each agent does, from its card, as text that notifies nobody [NOT-1]", () => {
    const { body, formatted_body: html } = directory([
      {
        ghost: ghost("docs"),
        name: "Docs · Organisation A",
        available: true,
        description: "Answers\n@room <b>questions</b>.",
        skills: [{ name: "Survey", description: "Goes through all.", examples: ["Survey the documents"] }],
      },
    ]);
    assert.equal(
      body,
      "Invite an agent to a room and mention it with your question. Agents of a.test:\n" +
        "- Docs · Organisation A: @agent_docs:a.test. Answers @\u2060room <b>questions</b>.\n" +
        "  - Survey: Goes through all. For example: Survey the documents",
    );
    assert.match(
      String(html),
      /<br>Answers @\u2060room &lt;b&gt;questions&lt;\/b&gt;\.<ul><li><strong>Survey<\/strong>: Goes through all\. <em>/,
    );
  });

  it("a notice is in the language of its catalogue alone [NOT-1]", () => {
    const said = (kind: "help" | "delegation_failed", reason?: "agent_failed") =>
      String(noticeContent({ ...facts, kind, reason }, { ...context, texts: DE })["body"]);
    assert.match(said("help"), /^- Erwähne einen Agenten/);
    assert.equal(
      said("delegation_failed", "agent_failed"),
      `${DE.openings.delegation_failed} ${DE.reasons.agent_failed}`,
    );
  });

  it("help is a list of what a person can write [NOT-1]", () => {
    const { body, formatted_body: html } = noticeContent({ ...facts, kind: "help" }, context);
    assert.match(String(body), /^- Mention an agent.*\n- `!agents` /);
    assert.match(String(html), /^<ul>\n<li>Mention an agent.*<code>!agents<\/code>/s);
  });

  it("a directory lists every agent, however much the card of one of them says [NOT-1]", () => {
    const long = { name: "😀".repeat(80), description: "😀".repeat(300), examples: ["😀".repeat(300)] };
    const others = ["b", "c", "d"].map((one) => {
      return { ghost: ghost(one), name: one, available: true, description: "bills ".repeat(40) };
    });
    const skills = Array.from({ length: 6 }, () => long);
    const { body } = directory([{ ghost: ghost("a"), available: true, ...long, skills }, ...others]);
    assert.match(String(body), /😀: @agent_a:a\.test\n- b: .*bills\n- c: .*bills\n- d: .*bills$/);
  });

  it("a directory of any size and any names fits one event [NOT-1]", () => {
    const name = unicodeText({ minLength: 1, maxLength: 255 });
    fc.assert(
      fc.property(fc.array(name, { maxLength: 300 }), (names) => {
        const lines = names.map((one, index) => ({
          ghost: ghost(String(index)),
          name: one,
          available: false,
          description: one,
          skills: [{ name: one, description: one, examples: [one] }],
        }));
        assert.ok(Buffer.byteLength(JSON.stringify(directory(lines))) < 64_000);
      }),
      { numRuns: 30 },
    );
    const many = Array.from({ length: 60 }, (_, index) => ({
      ghost: ghost(String(index)),
      name: "&".repeat(255),
      available: false,
    }));
    assert.ok(Buffer.byteLength(JSON.stringify(directory(many))) < 64_000);
    assert.match(String(directory(many)["body"]), /… and \d+ more\.$/);
  });
});
