// The shell that starts git for tests.
import "../../support/git-starter.ts";
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import process from "node:process";
import { describe, it } from "node:test";
import { git, gitLine } from "../../../src/federation/repository/git.ts";
import { temporaryFolder } from "../../support/temporary.ts";

describe("git for tests", () => {
  it("is a child of a shell, and has the folder, arguments, environment and input of the call", async (t) => {
    const cwd = temporaryFolder(t);
    const alias = (command: string) => ["-c", `alias.test=!${command}`, "test"];
    const parent = await gitLine(alias("ps -o ppid= -p $PPID"), { cwd });
    assert.notEqual(Number(parent), process.pid);
    assert.equal(await gitLine(alias('echo "$PWD"'), { cwd }), cwd);
    const given = "it's\n$HOME";
    assert.equal(await gitLine(alias('printf %s "$GIVEN"'), { cwd, env: { GIVEN: given } }), given);
    assert.equal(await gitLine([...alias("printf %s"), given], { cwd }), given);
    const digest = createHash("sha1").update(`blob ${given.length}\0${given}`).digest("hex");
    assert.equal(await gitLine(["hash-object", "--stdin"], { cwd, input: given }), digest);
    assert.equal(await gitLine(alias('echo "$HOME$OLDPWD"'), { cwd }), "");
  });

  it("ends with its own exit code and error output, several at a time", async (t) => {
    const cwd = temporaryFolder(t);
    const calls = [0, 1, 2].map((code) =>
      git(["-c", `alias.end=!echo ${code} >&2; exit ${code}`, "end"], { cwd }),
    );
    const answers = await Promise.all(calls);
    assert.deepEqual(
      answers.map(({ code, stderr }) => [code, stderr]),
      [
        [0, "0\n"],
        [1, "1\n"],
        [2, "2\n"],
      ],
    );
  });
});
