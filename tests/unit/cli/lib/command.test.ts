// What the CLI prints, whatever identifiers hold.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { stateOf } from "../../../../src/cli/federation/contain-or-restore.ts";
import {
  print,
  printError,
  renderError,
  renderTable,
  say,
  tolerateClosedOutput,
} from "../../../../src/cli/lib/command.ts";
import { progressReporter } from "../../../../src/cli/lib/federation.ts";
import { blockLines } from "../../../../src/cli/lib/offboarding.ts";
import { DrawbridgeError } from "../../../../src/domain/errors.ts";
import type { PlaneResult } from "../../../../src/federation/containment/contain-or-restore.ts";
import { blocksOf } from "../../../../src/federation/offboarding/steps/status.ts";
import { temporaryFolder } from "../../../support/temporary.ts";

const HOSTILE = "!a\x1b[2J\x9b31m\u202e\r\b'; touch pwned; echo '\u2066:evil.example";
const ACTS = /[^\P{Cc}\n]|[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/u;

function capture(t: TestContext): () => string {
  let printed = "";
  for (const stream of [process.stdout, process.stderr]) {
    t.mock.method(stream, "write", (text: string) => {
      printed += text;
      return true;
    });
  }
  return () => printed;
}

describe("printing", () => {
  it("tables, errors, hints and progress show control and bidirectional characters as escapes [CON-1]", (t) => {
    const printed = capture(t);
    print({ json: false }, {}, () => renderTable(["room"], [[`${HOSTILE}\nforged line`]]));
    print({ json: true }, { [HOSTILE]: HOSTILE }, () => "");
    say(HOSTILE);
    printError(renderError(new DrawbridgeError("usage", HOSTILE, { hint: HOSTILE })));
    progressReporter.note("rooms", HOSTILE);
    t.mock.restoreAll();
    assert.doesNotMatch(printed(), ACTS);
    assert.match(printed(), /\\u001b\[2J\\u009b31m\\u202e/);
    assert.doesNotMatch(printed(), /^forged line/m, "a cell is one line");
    const json = printed().slice(printed().indexOf("{"), printed().indexOf("}") + 1);
    assert.deepEqual(JSON.parse(json), { [HOSTILE]: HOSTILE }, "JSON keeps the value");
  });

  it("the hint that waives a room, pasted into bash, passes its ID as one argument and executes nothing [CON-1]", (t) => {
    const proof = { conditions: [], out_of_reach: [] };
    const unwaived = [{ subject: HOSTILE, reason: "no_power", hint: "Get it.", partner: "evil.example" }];
    const view = { stage: "rooms", progress: { proof }, unwaived } as unknown as Parameters<
      typeof blocksOf
    >[0];
    const hint = blocksOf(view).at(-1)?.hint ?? "";
    const command = /drawbridge offboarding waive .* --reason WORD/s.exec(hint)?.[0] ?? assert.fail(hint);
    const folder = temporaryFolder(t);
    const input = `drawbridge() { printf '%s' "$3"; }\n${command}\n`;
    assert.equal(execFileSync("bash", { cwd: folder, input, encoding: "utf8" }), HOSTILE);
    assert.deepEqual(readdirSync(folder), []);
    assert.doesNotMatch(blockLines(blocksOf(view)).join("\n"), ACTS);
  });

  it("a plane is called closed only as far as it is managed [CON-1]", () => {
    const whole = {
      plane: "card",
      done: true,
      verdict: "met",
      reason: null,
      repairedAt: null,
      conditions: [],
    };
    const part = { ...whole, conditions: [{ verdict: "met" }, { verdict: "unmanaged" }] };
    const [one, other] = [whole, part].map((result) => stateOf("contain", result as unknown as PlaneResult));
    assert.deepEqual([one, other], ["closed", "closed as far as it is managed here"]);
  });

  it("a reader that closes its end ends the process quietly, and another failure of the output does not [CON-1]", (t) => {
    const before = process.stdout.listeners("error");
    tolerateClosedOutput();
    const [listener = assert.fail()] = process.stdout
      .listeners("error")
      .filter((one) => !before.includes(one));
    process.stdout.off("error", listener as () => void);
    const exit = t.mock.method(process, "exit", () => undefined as never);
    const failed = (code: string) => () =>
      listener.call(process.stdout, Object.assign(new Error(code), { code }));
    assert.throws(failed("ENOSPC"), /ENOSPC/);
    assert.equal(exit.mock.callCount(), 0);
    assert.throws(failed("EPIPE"), /EPIPE/, "a process that is ended goes on no further");
    assert.deepEqual(exit.mock.calls[0]?.arguments, [0]);
  });

  it("nothing else in the CLI writes to a stream of the process", () => {
    const folder = join(import.meta.dirname, "../../../../src/cli");
    const found = readdirSync(folder, { recursive: true, encoding: "utf8" })
      .filter((file) => file.endsWith(".ts") && file !== join("lib", "command.ts"))
      .filter((file) => /process\.std(?:out|err)|console\./.test(readFileSync(join(folder, file), "utf8")));
    assert.deepEqual(found, []);
  });
});
