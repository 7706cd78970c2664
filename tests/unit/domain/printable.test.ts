import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { describe, it } from "node:test";
import fc from "fast-check";
import { printableLine, printableText, quoted, shellWord } from "../../../src/domain/printable.ts";
import { temporaryFolder } from "../../support/temporary.ts";

/** Written apart from the code: C0 and C1 controls, DEL, bidirectional and other invisible format characters. */
const ACTS = [
  ...Array(32).keys(),
  ...Array.from({ length: 33 }, (_, index) => 0x7f + index),
  ...[0xad, 0x61c, 0x200b, 0x200e, 0x200f, 0x2028, 0x2029, 0x202a, 0x202e, 0x2066, 0x2069, 0xfeff, 0xe0041],
].map((point) => String.fromCodePoint(point));
const anyText = fc
  .array(fc.oneof(fc.constantFrom(...ACTS), fc.constantFrom(..."'\"`$(){};&|<>*?!~\\ \t-#"), fc.string()))
  .map((parts) => parts.join(""));
const actsIn = (text: string) => ACTS.filter((mark) => text.includes(mark));

describe("text of unknown origin", () => {
  it("no character that acts on a terminal is left in a line, and only line breaks are left in a text [CON-1]", () => {
    fc.assert(
      fc.property(anyText, (text) => {
        assert.deepEqual(actsIn(printableLine(text)), []);
        assert.deepEqual(actsIn(printableText(text).replaceAll("\n", "")), []);
        assert.deepEqual(actsIn(quoted(text)), []);
        assert.equal(JSON.parse(quoted(text)), text);
        assert.deepEqual(actsIn(shellWord(text)), []);
      }),
    );
    assert.equal(printableLine("a\u202eb\x1b[2J\u{e0041}"), "a\\u202eb\\u001b[2J\\udb40\\udc41");
    assert.equal(printableText("!room:ünï.example — ok\n"), "!room:ünï.example — ok\n");
  });

  it("a word for a shell is one argument, exactly that text in bash, and executes nothing in bash and sh", (t) => {
    const folder = temporaryFolder(t);
    const words = [
      ...fc.sample(anyText, 200),
      "!a'; touch pwned; echo '",
      "!a\\'; touch pwned; #",
      "$(touch pwned)",
      "`touch pwned`",
      "!a\n touch pwned\n",
      "!a\u202e'$(touch pwned)",
      "'\x1b]0;x\x07",
      "",
    ].map((word) => word.replaceAll("\0", "").toWellFormed());
    const script = `show() { printf '%s\\0' "$#" "$1"; }\n${words.map((word) => `show ${shellWord(word)}`).join("\n")}\n`;
    const run = (shell: string) =>
      execFileSync(shell, { cwd: folder, input: script, encoding: "utf8" }).split("\0").slice(0, -1);
    assert.deepEqual(
      run("bash"),
      words.flatMap((word) => ["1", word]),
    );
    assert.ok(run("sh").every((field, index) => index % 2 === 1 || field === "1"));
    assert.deepEqual(readdirSync(folder), []);
  });
});
