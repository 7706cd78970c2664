import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { composeAnswer, excerpt } from "../../../../examples/docs-qa/search/answer.ts";
import { splitSections } from "../../../../examples/docs-qa/search/documents.ts";
import { DocumentSearch, questionTerms } from "../../../../examples/docs-qa/search/search.ts";
import { unicodeText } from "../../../support/arbitraries.ts";

const DOCUMENTS = {
  "gateway.md": `# Gateway
The gateway is Envoy, configured by rendered files.
## Rotating a client's secret
Write the new secret into its file. The issuer reads it at the next request.
## Reading the access log
Each line says who called, by which route, with which code.`,
  "bridge.md": `# Bridge
## Encrypted rooms
The bridge refuses encrypted rooms with one notice.
## Policies
The sender policy is read again before each call.`,
};

const search = new DocumentSearch(
  Object.entries(DOCUMENTS).flatMap(([file, text]) => splitSections(file, text)),
);
const headingsFor = (question: string) => search.find(question).map(({ section }) => section.headings.at(-1));

describe("searching the documents", () => {
  for (const [question, heading] of [
    ["How do I rotate the secret of a client?", "Rotating a client's secret"],
    ["what's in the access log", "Reading the access log"],
    ["ENCRYPTED ROOM?", "Encrypted rooms"],
    ["Which policy is read before a call?", "Policies"],
    ["encryptd rooms", "Encrypted rooms"],
    ["encrypted rooms ticket 4711-ab9c", "Encrypted rooms"],
  ] as const) {
    it(`"${question}" finds "${heading}"`, () => {
      assert.equal(headingsFor(question)[0], heading);
    });
  }

  for (const question of [
    "",
    "?!",
    "the",
    "What is the capital of France?",
    "Who won the world cup?",
    "Does the moon read poems about secret gardens in winter?",
  ]) {
    it(`"${question}" finds nothing`, () => {
      assert.deepEqual(headingsFor(question), []);
    });
  }

  it("a question of any length and content is searched without an error", () => {
    fc.assert(
      fc.property(unicodeText({ maxLength: 4_000 }), (question) => {
        assert.ok(search.find(question).length <= 3);
        assert.ok(questionTerms(question).length <= 48);
      }),
    );
  });

  it("an answer quotes the text and names file and headings", () => {
    assert.equal(
      composeAnswer(search.find("rotate client secret").slice(0, 1), "the documents of org A do"),
      "`gateway.md` — **Gateway › Rotating a client's secret**\n\n" +
        "> Write the new secret into its file. The issuer reads it at the next request.",
    );
  });

  it("without a match the answer says so and repeats nothing of the question", () => {
    const answer = composeAnswer(search.find("xyzzy plugh"), "the documents of org A do");
    assert.match(answer, /^Not found:/);
    assert.doesNotMatch(answer, /xyzzy/);
  });

  it("a long section is quoted around what was asked, within its bound", () => {
    const paragraph = (word: string) => `${word} ${"filler ".repeat(60)}`.trim();
    const text = ["one", "two", "needle", "four", "five", "six"].map(paragraph).join("\n\n");
    const part = excerpt(text, ["needle"]);
    assert.match(part, /needle/);
    assert.ok(part.length < 1_300, String(part.length));
    assert.match(part, /^…/);
  });

  it("an excerpt never exceeds its bound by more than its marks, and never splits a surrogate pair", () => {
    fc.assert(
      fc.property(fc.string({ unit: "grapheme", minLength: 0, maxLength: 6_000 }), (text) => {
        const part = excerpt(text, ["x"]);
        assert.ok(part.length <= Math.max(1_200, 1_210), String(part.length));
        if (text.isWellFormed()) assert.ok(part.isWellFormed());
      }),
    );
  });
});
