import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import {
  type Answer,
  type AnswerSource,
  CONTENT_BYTES_MAX,
  answerParts as partsOf,
  splitText,
} from "../../../../src/bridge/matrix/answer-events.ts";
import { systemClock } from "../../../../src/domain/clock.ts";
import type { EventId, UserId } from "../../../../src/domain/identifiers.ts";
import { unicodeText } from "../../../support/arbitraries.ts";

/** Bytes of a well-formed text as the inside of a JSON string. */
const jsonBytes = (text: string) => Buffer.byteLength(JSON.stringify(text), "utf8") - 2;

const SOURCE: AnswerSource = {
  eventId: "$question" as EventId,
  threadRoot: undefined,
  sender: "@alice:a.test" as UserId,
};

/** Any text: binary UTF-16 with lone surrogates, control characters, escapes, Markdown, long lines. */
const anyText = fc
  .array(
    fc.oneof(
      unicodeText({ maxLength: 40 }),
      fc.string({ unit: "grapheme", maxLength: 40 }),
      fc.constantFrom("\n", "\n\n", " ", '"', "\\", "\u0000", "\u{1F600}", "\ud800", "```\n", "<b>&", "# "),
    ),
    { maxLength: 60 },
  )
  .map((pieces) => pieces.join(""));

const answerParts = (answer: Answer, source: AnswerSource) => partsOf(answer, source, systemClock);
const bodies = (parts: Awaited<ReturnType<typeof answerParts>>) =>
  parts.map((part) => String(part.content["body"]));

/** The answer, joined; a long one stands behind its beginning. */
const wholeOf = (parts: Awaited<ReturnType<typeof answerParts>>, text: string) =>
  bodies(text.length > 4_000 ? parts.slice(1) : parts).join("");

describe("events of an answer", () => {
  it("no code unit of an answer is lost, and its parts keep their order [DEL-4]", () => {
    fc.assert(
      fc.property(anyText, fc.integer({ min: 6, max: 100 }), (raw, bytesMax) => {
        const text = raw.toWellFormed();
        const pieces = splitText(text, bytesMax);
        assert.equal(pieces.join(""), text);
        for (const piece of pieces) {
          assert.ok(piece.length > 0 && jsonBytes(piece) <= bytesMax, JSON.stringify(piece));
          assert.ok(piece.isWellFormed(), "no surrogate pair is cut");
        }
      }),
      { numRuns: 2_000 },
    );
  });

  it("every part of a long answer fits its event, whatever characters it has [DEL-4]", async () => {
    const filler = fc.constantFrom("word ", "\n", '"<&>', "\u0000", "\u{1F600}", "é", "a", "* _ ` ", "> ");
    await fc.assert(
      fc.asyncProperty(
        fc.array(filler, { minLength: 1, maxLength: 6 }),
        fc.nat(120_000),
        async (units, length) => {
          const unit = units.join("");
          const text = unit.repeat(Math.ceil(length / unit.length) + 1);
          const parts = await answerParts({ text }, SOURCE);
          if (text.trim() !== "") assert.equal(wholeOf(parts, text), text);
          for (const part of parts) {
            assert.ok(Buffer.byteLength(JSON.stringify(part.content)) < CONTENT_BYTES_MAX);
          }
        },
      ),
      { numRuns: 40 },
    );
  });

  it("the longest answer takes about sixty events", async () => {
    const text = "A line of an answer that is quite long.\n".repeat(26_000).slice(0, 1024 * 1024);
    const parts = await partsOf({ text }, SOURCE, { ...systemClock, now: () => 0 });
    assert.ok(parts.length <= 68, `${parts.length} events`);
    assert.ok(wholeOf(parts, text) === text);
    assert.ok(parts.every((part) => part.content["formatted_body"] !== undefined));
  });

  it("a text is cut at a blank line when one is near, else at a line, a space, or between code points", () => {
    assert.deepEqual(splitText("one\n\ntwo two\nthree", 16), ["one\n\ntwo two\n", "three"]);
    assert.deepEqual(splitText("aaaaaaa\n\nbbb\ncccccc", 16), ["aaaaaaa\n\n", "bbb\ncccccc"]);
    assert.deepEqual(splitText("aaaa bbbb cccc", 10), ["aaaa bbbb ", "cccc"]);
    assert.deepEqual(splitText("aaaaaaaaaa", 6), ["aaaaaa", "aaaa"]);
    assert.deepEqual(splitText("\u{1F600}\u{1F600}", 6), ["\u{1F600}", "\u{1F600}"]);
    assert.deepEqual(splitText("a\u{1F600}\u{1F600}\u{1F600}", 9), ["a\u{1F600}\u{1F600}", "\u{1F600}"]);
  });

  it("cutting a text that offers no place to cut at takes time in proportion to its length", () => {
    const cost = (length: number) => {
      const text = "a".repeat(length);
      const runs = Array.from({ length: 7 }, () => {
        const before = process.cpuUsage();
        splitText(text, 1_000);
        const { user, system } = process.cpuUsage(before);
        return user + system;
      });
      return Math.min(...runs);
    };
    cost(65_536);
    const [one, four] = [cost(262_144), cost(1_048_576)];
    assert.ok(four < 8 * one, `four times the length takes ${(four / one).toFixed(1)} times as long`);
  });

  it("an answer of a mebibyte is cut in a fraction of the time that formatting may take", () => {
    for (const text of ["\u{1F600}".repeat(262_144), "\u0001".repeat(1_048_576)]) {
      const runs = Array.from({ length: 5 }, () => {
        const before = process.cpuUsage();
        splitText(text, 16_384);
        return process.cpuUsage(before).user / 1_000;
      });
      assert.ok(Math.min(...runs) < 60, `it takes ${Math.min(...runs)} ms at least`);
    }
  });

  it("an answer replies to its question, and mentions the sender where that is wanted", async () => {
    for (const [mentionsAsker, mentions] of [
      [true, { user_ids: ["@alice:a.test"] }],
      [false, {}],
    ] as const) {
      const [part, ...others] = await answerParts({ text: "short" }, { ...SOURCE, mentionsAsker });
      assert.equal(others.length, 0);
      assert.equal(part?.eventType, "m.room.message");
      assert.equal(part.content["msgtype"], "m.text");
      assert.deepEqual(part.content["m.mentions"], mentions);
      assert.deepEqual(part.content["m.relates_to"], { "m.in_reply_to": { event_id: "$question" } });
    }
  });

  it("a long answer is one message with its beginning, and the whole of it in a thread of the question", async () => {
    const text = "A sentence of the answer. ".repeat(2_000);
    const [short, ...thread] = await answerParts({ text }, SOURCE);
    assert.ok(String(short?.content["body"]).length < 1_100);
    assert.match(
      String(short?.content["body"]),
      /^A sentence .*… The whole answer is in the thread of the question\.$/s,
    );
    assert.deepEqual(short?.content["m.relates_to"], { "m.in_reply_to": { event_id: "$question" } });
    assert.deepEqual(short?.content["m.mentions"], { user_ids: ["@alice:a.test"] });
    assert.equal(bodies(thread).join(""), text);
    for (const part of thread) {
      assert.deepEqual(part.content["m.mentions"], {});
      const relation = part.content["m.relates_to"] as Record<string, unknown>;
      assert.deepEqual([relation["rel_type"], relation["event_id"]], ["m.thread", "$question"]);
    }
  });

  it("an answer mentions nobody but its asker, whatever it says", async () => {
    const text =
      "@room look, @Room! &#64;room **&commat;room** [you](https://matrix.to/#/@bob:a.test) see matrix:u/bob:a.test";
    const [part] = await answerParts({ text }, SOURCE);
    assert.deepEqual(part?.content["m.mentions"], { user_ids: ["@alice:a.test"] });
    assert.doesNotMatch(JSON.stringify(part?.content), /@room/i);
    assert.doesNotMatch(String(part?.content["formatted_body"]), /<a/);
  });

  it("a question asked in a thread is answered in that thread", async () => {
    const source = { ...SOURCE, threadRoot: "$root" as EventId };
    const [first, second] = await answerParts({ text: "x".repeat(30_000) }, source);
    const relation = { rel_type: "m.thread", event_id: "$root", "m.in_reply_to": { event_id: "$question" } };
    assert.deepEqual(first?.content["m.relates_to"], { ...relation, is_falling_back: false });
    assert.deepEqual(second?.content["m.relates_to"], { ...relation, is_falling_back: true });
  });

  it("an answer without text has a text that says so", async () => {
    for (const text of ["", " \n"]) {
      assert.deepEqual(bodies(await answerParts({ text }, SOURCE)), [
        "(The agent finished without a text answer.)",
      ]);
    }
  });

  it("an answer is formatted as its media type says", async () => {
    const html = async (text: string, mediaType?: string) =>
      (await answerParts({ text, mediaType }, SOURCE))[0]?.content["formatted_body"];
    assert.equal(await html("**bold**"), "<p><strong>bold</strong></p>");
    assert.equal(await html("**bold**", "text/markdown; charset=utf-8"), "<p><strong>bold</strong></p>");
    assert.equal(await html("**bold**", "text/plain"), undefined);
    assert.equal(
      await html('{"a":"<b>"}', "application/json"),
      "<pre><code>{&quot;a&quot;:&quot;&lt;b&gt;&quot;}</code></pre>",
    );
  });
});
