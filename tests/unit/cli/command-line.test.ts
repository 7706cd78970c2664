// The command line as a whole: help, exit codes, and that a command costs nothing until it is called.

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { renderError, renderTable } from "../../../src/cli/lib/command.ts";
import { ExitCode, endingOf } from "../../../src/cli/lib/exit-codes.ts";
import { buildProgram, COMMANDS, entryOf, PRODUCTS } from "../../../src/cli/program.ts";
import { DrawbridgeError } from "../../../src/domain/errors.ts";
import { runCliHere } from "../../support/cli-in-process.ts";
import { ROOT, run } from "../../support/temporary.ts";

const LAUNCHER = join(ROOT, "bin", "drawbridge");

describe("command line", () => {
  it("--help lists every command below its product, and the exit codes, and exits 0", async () => {
    const ended = await run(LAUNCHER, ["--help"]);
    assert.equal(ended.code, ExitCode.ok);
    for (const [heading, groups] of Object.entries(PRODUCTS)) {
      const section = ended.stdout.split(`\n${heading}\n`)[1]?.split("\n\n")[0] ?? assert.fail(heading);
      for (const { words } of groups) assert.match(section, new RegExp(`^  ${words[0]}\\b`, "m"));
    }
    for (const { path } of COMMANDS) assert.match(ended.stdout, new RegExp(`^  ${path[0]}\\b`, "m"));
    assert.match(ended.stdout, /Exit codes:\n {2}0 .*\n {2}1 .*\n {2}2 .*\n {2}3 /);
  });

  /** The help of the command that `words` name; in this process, since there are some fifty of them. */
  async function helpOf(words: readonly string[]): Promise<string> {
    let command = await buildProgram(words);
    for (const word of words)
      command = command.commands.find((one) => one.name() === word) ?? assert.fail(word);
    return command.helpInformation();
  }

  it("every command loads, has a usage line and is listed with its summary", async () => {
    for (const { path, summary } of COMMANDS) {
      const help = await helpOf(path);
      assert.ok(help.startsWith(`Usage: drawbridge ${path.join(" ")}`), help);
      const listing = (await helpOf(path.slice(0, -1))).replaceAll(/\s+/g, " ");
      assert.ok(listing.includes(summary), `${path.join(" ")}: ${summary}`);
    }
  });

  it("a command's --help prints its help and exits 0", async () => {
    const ended = await run(LAUNCHER, ["card", "verify", "--help"]);
    assert.deepEqual([ended.code, ended.stderr], [ExitCode.ok, ""]);
    assert.ok(ended.stdout.startsWith(await helpOf(["card", "verify"])), ended.stdout);
  });

  it("help marks required options, lists exit codes and defines the words of federation control", async () => {
    const helpOf = async (...words: string[]) =>
      (await runCliHere([...words, "--help"])).stdout.replaceAll(/\s+/g, " ");
    const init = await helpOf("bridge", "init");
    assert.match(init, /--directory <directory> the folder to write \(required\)/);
    assert.doesNotMatch(await helpOf("doctor"), /default: false|--json [^-]*\(required\)/);
    assert.match(await helpOf("federation", "contain"), /it continues\. Exit codes: 0 done/);
    for (const group of ["agent", "federation", "offboarding", "readmission"]) {
      assert.match(
        await helpOf(group),
        /Words: partner .*planes .*1 transport, 2 rooms, 3 border, 4 card, 5 gateway/,
      );
    }
  });

  it("a task prints its help instead of running when --help is given", async () => {
    for (const [name, says] of [
      ["check", /^Usage: \.\/task check \[arguments\]\n\nTypes, style/],
      ["test", /^Usage: \.\/task test \[arguments\]\n\nUnit and integration tests/],
      ["fed:status", /^Usage: \.\/task fed:status \[--name LAB\]/],
    ] as const) {
      const ended = await run(process.execPath, [join(ROOT, "tasks/main.ts"), name, "--help"]);
      assert.equal(ended.code, ExitCode.ok);
      assert.match(ended.stdout, says);
    }
  });

  it("an unknown command or option exits 2 with a hint", async () => {
    for (const words of [["no-such-command"], ["--no-such-option"]]) {
      const ended = await run(LAUNCHER, words);
      assert.deepEqual([ended.code, ended.stdout], [ExitCode.usage, ""]);
      assert.match(ended.stderr, /^error: .*\nhint: /);
    }
  });

  it("only the command that is called is loaded", async () => {
    const loaded: string[] = [];
    const entry = (first: string, second: string) => ({
      path: [first, second] as const,
      summary: second,
      load: async () => {
        loaded.push(`${first} ${second}`);
        return () => {};
      },
    });
    const single = { ...entry("bridge", "run"), path: ["bridge"] as const };
    const entries = [single, entry("card", "verify"), entry("card", "sign"), entry("bridge", "init")];
    await buildProgram(["card", "sign", "FILE"], {
      "Planted:": [{ words: ["bridge"], summary: "planted", commands: entries }],
    });
    assert.deepEqual(loaded, ["card sign"]);
    assert.equal(entryOf(entries, ["help", "card", "verify"])?.summary, "verify");
    assert.equal(entryOf(entries, ["card"]), undefined);
    assert.equal(entryOf(entries, ["bridge", "--config", "init"])?.summary, "run");
    assert.equal(entryOf(entries, ["bridge", "init"])?.summary, "init");
  });

  it("an error shows its hint, and its code decides the exit code", () => {
    const error = new DrawbridgeError("config_invalid", "a.yaml:3: wrong", { hint: "Correct it." });
    assert.equal(renderError(error), "error: a.yaml:3: wrong\nhint: Correct it.\n");
    assert.equal(endingOf(error), "usage");
    assert.equal(endingOf(new DrawbridgeError("database_unavailable", "x")), "unavailable");
    assert.equal(endingOf(new DrawbridgeError("card_rejected", "x")), "failed");
    assert.equal(endingOf(new TypeError("x")), "failed");
  });

  it("an unexpected error keeps its stack so that it can be reported", () => {
    assert.match(renderError(new TypeError("oops")), /TypeError: oops\n {4}at .*\nhint: This is a defect/s);
  });

  it("a full disk is no defect of the program", () => {
    const fill = () => writeFileSync("/dev/full", "x");
    assert.throws(fill, (error) => /^error: ENOSPC: .*\nhint: See that/.test(renderError(error)));
  });

  it("a table has aligned columns and no trailing blanks", () => {
    const table = renderTable(
      ["NAME", "STATE"],
      [
        ["a", "up"],
        ["longer-name", ""],
      ],
    );
    assert.equal(table, "NAME         STATE\na            up\nlonger-name\n");
  });
});
