// Encrypted rooms with a client of another make: Python's mautrix, whose encryption is its own over libolm.
// Needs python3 and the package registry, as the lab's own installation does.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { Fed } from "../../../support/lab-session.ts";
import { pythonWith } from "../../../support/python.ts";
import { ROOT } from "../../../support/temporary.ts";

interface Answered {
  readonly question: string;
  readonly answer: string;
  readonly body: string;
  readonly encrypted: boolean;
}

const fed = new Fed();
after(async () => {
  await fed.good("fed:down", "--purge");
  fed.remove();
});

describe("a client of another implementation", () => {
  it("a client that trusts only cross-signed devices asks both ghosts and reads the answers [ENC-2] [ENC-7]", async (t) => {
    const python = await pythonWith(t, "foreign-client.txt");

    assert.deepEqual((await fed.up()).failures, []);
    const { clientUrl, users, rooms, bridge } = (await fed.status()).organisations["org-b"];
    const [alice] = users;
    const theirs = rooms.filter(({ encrypted }) => encrypted)[1];
    assert.ok(alice !== undefined && theirs !== undefined && bridge !== undefined);
    const questions = bridge.ghosts.map(({ userId }) => ({
      room: theirs.roomId,
      ghost: userId,
      text: "When does the span open?",
    }));
    assert.equal(questions.length, 2);
    const input = { homeserver: clientUrl, user: alice.userId, password: alice.password, questions };
    const answered = await asked(python, JSON.stringify(input));
    assert.equal(answered.length, 2);
    for (const { encrypted, question, answer } of answered) {
      assert.equal(encrypted, true);
      assert.match(question, /^\$/);
      assert.match(answer, /^\$/);
    }
    assert.match(answered.map(({ body }) => body).join("\n"), /The east span opens on the hour/);
  });

  async function asked(python: string, input: string): Promise<Answered[]> {
    const program = join(ROOT, "tests", "support", "python", "foreign_client.py");
    const child = spawn(python, [program], { stdio: ["pipe", "pipe", "pipe"] });
    child.stdin.end(input);
    const output = { stdout: "", stderr: "" };
    for (const name of ["stdout", "stderr"] as const) {
      child[name].on("data", (chunk: Buffer) => {
        output[name] += chunk.toString("utf8");
      });
    }
    const code = await new Promise((resolve) => child.once("close", resolve));
    assert.equal(code, 0, output.stderr);
    return output.stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as Answered);
  }
});
