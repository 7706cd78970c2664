import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { ContentPart, TaskUpdate as Update } from "../../../../src/bridge/delegation/a2a/protocol.ts";
import { AnswerAssembly, answerOf, missingFile } from "../../../../src/bridge/delegation/assemble-answer.ts";

const MAX = 10_000;

const text = (value: string, mediaType = ""): ContentPart => ({ kind: "text", text: value, mediaType });
const artifact = (artifactId: string, parts: ContentPart[], append = false): Update => ({
  kind: "artifact",
  taskId: "t",
  contextId: undefined,
  artifact: { artifactId, parts },
  append,
});
const completed = (...parts: ContentPart[]): Update => ({
  kind: "status",
  taskId: "t",
  contextId: undefined,
  statusKey: undefined,
  phase: "completed",
  parts,
});
const task = (artifacts: [string, ContentPart[]][], statusParts: ContentPart[] = []): Update => ({
  kind: "task",
  taskId: "t",
  contextId: undefined,
  statusKey: undefined,
  phase: "completed",
  parts: statusParts,
  artifacts: artifacts.map(([artifactId, parts]) => ({ artifactId, parts })),
  messageIds: [],
  updatedAt: undefined,
});

function assembled(...updates: Update[]) {
  const assembly = new AnswerAssembly(10_000);
  for (const update of updates) assembly.take(update, false);
  return assembly.answer();
}

describe("answer text", () => {
  it("the chunks of an artifact make one text, wherever they are cut", () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: "grapheme" }), { minLength: 1 }), (chunks) => {
        const whole = chunks.join("");
        const updates = chunks.map((chunk, index) => artifact("a", [text(chunk)], index > 0));
        assert.equal(
          assembled(...updates).text,
          whole.trim() === "" ? "" : whole.replaceAll("\0", "\u{fffd}"),
        );
      }),
    );
  });

  it("artifacts keep their order of appearance, and parts theirs", () => {
    const answer = assembled(
      artifact("b", [text("one"), text("two")]),
      artifact("a", [text("three")]),
      artifact("b", [text(" and a half")], true),
      completed(),
    );
    assert.equal(answer.text, "one\n\ntwo and a half\n\nthree");
  });

  it("an artifact sent again replaces the first", () => {
    assert.equal(assembled(artifact("a", [text("draft")]), artifact("a", [text("final")])).text, "final");
  });

  it("a whole task replaces earlier updates, and a streaming agent's parts are its chunks", () => {
    const assembly = new AnswerAssembly(10_000);
    assembly.take(artifact("gone", [text("x")]), true);
    assert.equal(assembly.take(task([["a", [text("the "), text("answer")]]]), true), "completed");
    assert.equal(assembly.answer().text, "the answer");
    assembly.take(task([["a", [text("one"), text("two")]]]), false);
    assert.equal(assembly.answer().text, "one\n\ntwo");
  });

  it("the last status is the answer when there is no artifact, and the answer is empty without either", () => {
    assert.equal(assembled(completed(text("said"))).text, "said");
    assert.equal(assembled(artifact("a", [text("  ")]), completed(text("said"))).text, "said");
    assert.equal(assembled(completed()).text, "");
  });

  it("parts that are not text are described in text, and files are passed on beside it", () => {
    const file = { kind: "file", name: "", mediaType: "image/png", content: Buffer.alloc(12) } as const;
    const link = "https://b.test/plan.pdf";
    const answer = answerOf(
      [
        { kind: "data", json: '{\n  "a": 1\n}' },
        { kind: "link", name: "plan.pdf", mediaType: "application/pdf", url: link },
        file,
      ],
      MAX,
    );
    assert.equal(
      answer.text,
      '```json\n{\n  "a": 1\n}\n```\n\nplan.pdf (application/pdf): https://b.test/plan.pdf',
    );
    assert.deepEqual(answer.files, [file]);
    assert.equal(
      missingFile(file),
      "Attachment (image/png), 12 bytes: sent as a file, which is not shown here.",
    );
  });

  it("a media type is kept only when the whole answer has it", () => {
    assert.equal(answerOf([text("a", "text/plain"), text("b", "text/plain")], MAX).mediaType, "text/plain");
    assert.equal(answerOf([text("a", "text/plain"), text("b", "text/markdown")], MAX).mediaType, undefined);
    assert.equal(answerOf([text("a", "text/plain"), { kind: "data", json: "1" }], MAX).mediaType, undefined);
  });

  it("characters that no event may contain are replaced", () => {
    assert.equal(answerOf([text("a\0b\ud800c")], MAX).text, "a\u{fffd}b\u{fffd}c");
  });

  it("what data become by their indentation, and the names of files, count as what they are [AGT-4]", () => {
    const tooLarge = { name: "A2aFailure", kind: "too_large" };
    const data: ContentPart = { kind: "data", json: `[\n${" ".repeat(MAX)}1\n]` };
    assert.throws(() => answerOf([data], MAX), tooLarge);
    assert.throws(() => assembled(completed(data)), tooLarge);
    const file = {
      kind: "file",
      name: `${"n".repeat(6_000)}\n# a.png`,
      mediaType: "",
      content: Buffer.alloc(0),
    } as const;
    assert.throws(() => assembled(artifact("a", [file]), artifact("a", [file], true)), tooLarge);
    assert.match(missingFile(file), /^n{99}…, 0 bytes: sent as a file/);
  });

  it("an answer over the bound is refused, in one piece and in chunks", () => {
    const tooLarge = { name: "A2aFailure", kind: "too_large" };
    assert.throws(() => assembled(artifact("a", [text("x".repeat(10_001))])), tooLarge);
    const assembly = new AnswerAssembly(10_000);
    for (let index = 0; index < 98; index++)
      assembly.take(artifact("a", [text("x".repeat(100))], true), true);
    assert.throws(() => assembly.take(artifact("b", [text("x")]), true), tooLarge);
  });

  it("empty parts and empty artifacts are refused when there are too many of them [AGT-4]", () => {
    const empties = Array.from({ length: 100 }, () => text(""));
    const sendUntil = (send: (assembly: AnswerAssembly, index: number) => void) => {
      const assembly = new AnswerAssembly(1024 * 1024);
      for (let index = 0; index < 100_000; index++) send(assembly, index);
    };
    const tooLarge = { name: "A2aFailure", kind: "too_large" };
    assert.throws(() => sendUntil((to, index) => to.take(artifact(`${index}`, []), true)), tooLarge);
    assert.throws(() => sendUntil((to, index) => to.take(artifact(`${index}`, empties), true)), tooLarge);
  });

  it("a replaced artifact, or task, no longer counts against the bound", () => {
    const assembly = new AnswerAssembly(10_000);
    for (let index = 0; index < 10; index++) assembly.take(artifact("a", [text("x".repeat(9_000))]), true);
    assert.equal(assembly.answer().text.length, 9_000);
    const whole = task([["a", [text("x".repeat(6_000))]]]);
    assert.equal(assembled(whole, whole).text.length, 6_000);
  });

  it("a hundred thousand small chunks take no quadratic time", () => {
    const assembly = new AnswerAssembly(1024 * 1024);
    for (let index = 0; index < 100_000; index++)
      assembly.take(artifact("a", [text("ten bytes ")], true), true);
    assert.equal(assembly.answer().text.length, 1_000_000);
  });
});
