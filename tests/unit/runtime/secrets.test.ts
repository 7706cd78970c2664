import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import {
  type RegistrySecretReference,
  readRegistrySecret,
  readSecret,
} from "../../../src/runtime/secrets.ts";
import { problemsOf, withText } from "../../support/sample-files.ts";
import { temporaryFolder, writeFile } from "../../support/temporary.ts";

const REFUSED = (message: RegExp) => ({ code: "secret_unavailable", message });

function folder(t: TestContext): string {
  const directory = temporaryFolder(t);
  writeFile(join(directory, "client-secrets/a"), " of-a\n", 0o600);
  writeFile(join(directory, "signing.key"), "ed25519 a_1 private\n", 0o600);
  return directory;
}

describe("secrets", () => {
  it("a reference of the registry that names anything but a client's secret is refused by the check [REG-1]", () => {
    const path = "registry/partners/lighthouse.yaml";
    for (const reference of [
      "file: /etc/shadow",
      "file: ../../../etc/shadow",
      "file: client-secrets/../signing.key",
      "file: client-secrets/..",
      "file: client-secrets//etc/shadow",
      "file: signing.key",
      "file: secrets/as-token",
      "env: DATABASE_URL",
      "env: PATH",
    ]) {
      const problems = problemsOf(withText(path, "env: DRAWBRIDGE_SECRET_LIGHTHOUSE", reference));
      const found = problems.find(({ message }) => /must be a file below client-secrets\//.test(message));
      assert.match(
        found?.path ?? "",
        /^card\.consumes\.lighthouse-weather\.credentials\.clientSecret/,
        reference,
      );
    }
  });

  it("a secret that two entries have sent to different token endpoints is refused by the check [REG-1]", () => {
    const path = "registry/partners/lighthouse.yaml";
    const text = withText(path, "", "").get(path) ?? assert.fail();
    const consumed = /^ {4}[a-z][\w-]*:\n(?: {6}.*\n)+/m.exec(text)?.[0] ?? assert.fail(text);
    const copy = consumed
      .replace(/^ {4}[\w-]+:/, "    another-agent:")
      .replace(/tokenEndpoint: \S+/, "tokenEndpoint: https://evil.example/token");
    const rules = problemsOf(new Map([[path, text.replace(consumed, consumed + copy)]])).map(
      ({ rule }) => rule,
    );
    assert.ok(rules.includes("secret_endpoint"), rules.join());
  });

  it("a partner's file that consumes an agent with the secret of another file's client is refused by the check [REG-1]", () => {
    const path = "registry/partners/lighthouse.yaml";
    const given = "env: DRAWBRIDGE_SECRET_LIGHTHOUSE";
    for (const [secret, isRefused] of [
      // Of the organisation's own bridge, of its applicant, and of a partner.
      ["client-secrets/harbour-bridge", true],
      ["client-secrets/gull-applicant", true],
      ["client-secrets/salvage-co", true],
      ["client-secrets/lighthouse-bridge", false],
      ["client-secrets/of-nobody", false],
    ] as const) {
      const rules = problemsOf(withText(path, given, `file: ${secret}`)).map(({ rule }) => rule);
      assert.equal(rules.includes("secret_of_caller"), isRefused, `${secret}: ${rules.join()}`);
    }
  });

  it("the same references are refused when they are used, whatever was checked before [REG-1]", (t) => {
    const directory = folder(t);
    for (const file of ["/etc/shadow", "../x", "signing.key", "client-secrets/../signing.key"]) {
      const reference = { file } as RegistrySecretReference;
      assert.throws(
        () => readRegistrySecret(reference, directory),
        REFUSED(/names no secret that it may use/),
      );
    }
    assert.equal(readRegistrySecret({ file: "client-secrets/a" }, directory), "of-a");
  });

  it("a link that leads out of the folder is refused, and one that stays in it is followed [REG-1]", (t) => {
    const directory = folder(t);
    const secrets = join(directory, "client-secrets");
    symlinkSync("../signing.key", join(secrets, "out"));
    symlinkSync("/etc", join(secrets, "etc"));
    symlinkSync("a", join(secrets, "in"));
    for (const name of ["out", "etc/hostname"]) {
      assert.throws(
        () => readRegistrySecret({ file: `client-secrets/${name}` }, directory),
        REFUSED(/a link that leads out of/),
      );
    }
    assert.equal(readRegistrySecret({ file: "client-secrets/in" }, directory), "of-a");
    // The folder itself may be a link: where it is, the operator decides.
    const other = temporaryFolder(t);
    symlinkSync(secrets, join(other, "client-secrets"));
    assert.equal(readRegistrySecret({ file: "client-secrets/a" }, other), "of-a");
  });

  it("a file that group or others may read, and what is no regular file, is refused whoever refers to it [REG-1]", (t) => {
    const directory = folder(t);
    const file = join(directory, "client-secrets/a");
    for (const mode of [0o640, 0o604, 0o620, 0o601]) {
      chmodSync(file, mode);
      const read = REFUSED(/others may read the secret file/);
      assert.throws(() => readRegistrySecret({ file: "client-secrets/a" }, directory), read);
      assert.throws(() => readSecret({ file }, directory), read);
    }
    mkdirSync(join(directory, "client-secrets/folder"));
    execFileSync("mkfifo", [join(directory, "client-secrets/pipe")]);
    for (const name of ["folder", "pipe"]) {
      const reference = { file: `client-secrets/${name}` };
      assert.throws(() => readRegistrySecret(reference, directory), REFUSED(/no regular file/));
    }
  });
});
