import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { ContentPart } from "../../../../src/bridge/delegation/a2a/protocol.ts";
import { optionsOf } from "../../../../src/bridge/delegation/agent-question.ts";

const TEXT: ContentPart = { kind: "text", text: "Which?", mediaType: "" };
const data = (value: unknown): ContentPart => ({ kind: "data", json: JSON.stringify(value) });
const many = (count: number) => Array.from({ length: count }, (_, index) => `option ${index}`);

describe("the options of an agent's question", () => {
  it("are texts or labels with keys; a number, or no key, is a keycap [DEL-6]", () => {
    const listed = [" first ", { label: "second", id: "2" }, { label: "third", key: " x ", id: "y" }];
    assert.deepEqual(optionsOf([TEXT, data({ options: listed, more: true })]), {
      options: [
        { key: "1\u{fe0f}\u{20e3}", value: "first" },
        { key: "2\u{fe0f}\u{20e3}", value: "second" },
        { key: "x", value: "third" },
      ],
      rest: [TEXT],
    });
    assert.equal(optionsOf([data({ options: many(10) })]).options.at(-1)?.key, "🔟");
  });

  for (const [what, value] of [
    ["no object", ["one"]],
    ["null", null],
    ["no list of options", { options: "one" }],
    ["no option", { options: [] }],
    ["eleven options", { options: many(11) }],
    ["an option without a label", { options: [{ id: "a" }] }],
    ["an option that is no text", { options: ["one", 2] }],
    ["a blank label", { options: [" "] }],
    ["a label of two lines", { options: ["one\ntwo"] }],
    ["a label of more than 200 characters", { options: ["x".repeat(201)] }],
    ["a key of more than 16 characters", { options: [{ label: "one", key: "x".repeat(17) }] }],
    ["an ID that is no text", { options: [{ label: "one", id: 1 }] }],
    ["a key that is null", { options: [{ label: "one", key: null, id: "a" }] }],
    ["a key of which nothing is seen", { options: [{ label: "one", key: "\u{fe0f}" }] }],
    ["keys that people see as one", { options: ["one", { label: "two", key: "1" }] }],
  ] as const) {
    it(`${what} leaves the data a part of the question [DEL-6]`, () => {
      assert.deepEqual(optionsOf([TEXT, data(value)]), { options: [], rest: [TEXT, data(value)] });
    });
  }
});
