// `bridge init` and `bridge registration`, as an operator runs them.

import assert from "node:assert/strict";
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { parse } from "yaml";
import { ExitCode } from "../../../src/cli/lib/exit-codes.ts";
import { runCliHere } from "../../support/cli-in-process.ts";
import { temporaryFolder } from "../../support/temporary.ts";

const drawbridge = (...words: string[]) => runCliHere(words);

function init(t: TestContext, ...more: string[]) {
  const directory = join(temporaryFolder(t), "bridge");
  const words = ["--server-name", "example.org", "--homeserver-url", "http://127.0.0.1:8008", ...more];
  return { directory, ended: drawbridge("bridge", "init", "--directory", directory, ...words) };
}

describe("drawbridge bridge init and registration", () => {
  it("bridge init writes a private folder from which bridge registration works", async (t) => {
    const { directory, ended } = init(t, "--listen-port", "4000", "--database-env", "DATABASE_URL");
    const { code, stdout, stderr } = await ended;
    assert.equal(code, ExitCode.ok, stderr);
    const config = join(directory, "bridge.yaml");
    const rendered = await drawbridge("bridge", "registration", "--config", config);
    assert.equal(rendered.code, ExitCode.ok, rendered.stderr);
    assert.equal(rendered.stdout, `${join(directory, "registration.yaml")}\n`);
    for (const file of [...stdout.trim().split("\n"), rendered.stdout.trim()]) {
      assert.equal(statSync(file).mode & 0o777, 0o600, file);
    }
    const registration = parse(readFileSync(join(directory, "registration.yaml"), "utf8"));
    assert.equal(registration.url, "http://127.0.0.1:4000");
    assert.equal(registration.as_token, readFileSync(join(directory, "secrets/as-token"), "utf8").trim());
    assert.match(stderr, /1\. drawbridge bridge registration --config/);
    assert.doesNotMatch(stdout + stderr + rendered.stderr, new RegExp(registration.as_token));
  });

  it("bridge init keeps existing files and refuses invalid options", async (t) => {
    const { directory, ended } = init(t);
    await ended;
    const before = readFileSync(join(directory, "secrets/as-token"), "utf8");
    const again = ["--server-name", "example.org", "--homeserver-url", "http://127.0.0.1:8008"];
    const second = await drawbridge("bridge", "init", "--directory", directory, ...again);
    assert.equal(second.code, ExitCode.usage);
    assert.match(second.stderr, /exists already; nothing was written/);
    assert.equal(readFileSync(join(directory, "secrets/as-token"), "utf8"), before);

    for (const wrong of [
      ["--server-name", "not a name"],
      ["--homeserver-url", "ftp://example.org"],
      ["--listen-port", "70000"],
      ["--listen-port", "29341"],
      ["--database-env", "not-a-variable"],
    ]) {
      const { directory: other, ended: refused } = init(t, ...wrong);
      assert.equal((await refused).code, ExitCode.usage, wrong.join(" "));
      assert.throws(() => readdirSync(other), { code: "ENOENT" });
    }
  });

  it("bridge registration keeps a file with other tokens unless --force is given", async (t) => {
    const { directory, ended } = init(t);
    await ended;
    const words = ["bridge", "registration", "--config", join(directory, "bridge.yaml")];
    const file = join(directory, "registration.yaml");
    assert.equal((await drawbridge(...words)).code, ExitCode.ok);
    assert.equal((await drawbridge(...words)).code, ExitCode.ok, "the same tokens: rendered again");

    for (const foreign of ["as_token: another\n", "not: [yaml"]) {
      writeFileSync(file, foreign);
      const refused = await drawbridge(...words);
      assert.equal(refused.code, ExitCode.usage);
      assert.match(refused.stderr, /holds another registration\nhint: .*--force/);
      assert.equal(readFileSync(file, "utf8"), foreign);
    }
    assert.equal((await drawbridge(...words, "--force")).code, ExitCode.ok);
  });
});
