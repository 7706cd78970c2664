// Who signs: a key in a file, or a program that holds it; and what is refused from either.
import assert from "node:assert/strict";
import { createPublicKey, generateKeyPairSync, verify } from "node:crypto";
import { chmodSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe, it, type TestContext } from "node:test";
import { isInOneForm, readPublicKey } from "../../../../src/records/format/ecdsa-p256.ts";
import { STATEMENT_TYPE } from "../../../../src/records/format/statements.ts";
import { commandSigner, createKeyPair, fileSigner } from "../../../../src/records/sign/signer.ts";
import { signStatement } from "../../../support/removal.ts";
import { ROOT, run, temporaryFolder } from "../../../support/temporary.ts";

const DATA = Buffer.from("what is signed");
const STATEMENT = {
  _type: STATEMENT_TYPE,
  subject: [],
  predicateType: "https://example.org/v1",
  predicate: {},
} as const;

function keyIn(folder: string) {
  const { privateKeyFile, publicKeyFile } = createKeyPair(folder);
  const pem = readFileSync(publicKeyFile, "utf8");
  return { privateKeyFile, key: readPublicKey(pem, publicKeyFile), publicKey: createPublicKey(pem) };
}

/** A program that signs standard input, or does what `body` says instead. */
function program(t: TestContext, body: string, timeoutMs?: number) {
  const folder = temporaryFolder(t);
  const { privateKeyFile, key, publicKey } = keyIn(join(folder, "key"));
  const file = join(folder, "signer.mjs");
  writeFileSync(
    file,
    `import { readFileSync, writeFileSync, writeSync } from "node:fs";
     import { spawn } from "node:child_process";
     import { createPrivateKey, sign } from "node:crypto";
     const key = createPrivateKey(readFileSync(${JSON.stringify(privateKeyFile)}));
     const signed = (dsaEncoding) => sign("sha256", readFileSync(0), { key, dsaEncoding });
     ${body}`,
  );
  const signer = (...args: readonly string[]) =>
    commandSigner([process.execPath, file, ...args], key, timeoutMs);
  return { folder, key, publicKey, signer };
}

describe("signer", () => {
  it("a PKCS #8 key file is read again for each signature [OFF-2]", async (t) => {
    const folder = temporaryFolder(t);
    const { privateKeyFile, key, publicKey } = keyIn(folder);
    const signer = fileSigner(privateKeyFile);
    assert.equal(signer.keyId, key.keyId);
    assert.ok(verify("sha256", DATA, publicKey, await signer.sign(DATA)));
    const other = keyIn(join(folder, "other"));
    writeFileSync(privateKeyFile, readFileSync(other.privateKeyFile));
    await assert.rejects(signer.sign(DATA), { code: "secret_unavailable" });
  });

  it("a key file that others may read is refused", (t) => {
    const { privateKeyFile } = keyIn(temporaryFolder(t));
    for (const mode of [0o640, 0o604, 0o602]) {
      chmodSync(privateKeyFile, mode);
      assert.throws(() => fileSigner(privateKeyFile), {
        code: "secret_unavailable",
        message: /others may read/,
      });
    }
  });

  it("a file without a P-256 key is refused, and the error quotes nothing of it", async (t) => {
    const file = join(temporaryFolder(t), "key.pem");
    const pem = (curve: string) =>
      generateKeyPairSync("ec", { namedCurve: curve }).privateKey.export({ type: "pkcs8", format: "pem" });
    const encrypted = generateKeyPairSync("ec", { namedCurve: "prime256v1" }).privateKey.export({
      type: "pkcs8",
      format: "pem",
      cipher: "aes-256-cbc",
      passphrase: "x",
    });
    for (const text of ["", "a secret that is no key", pem("secp384r1"), encrypted]) {
      writeFileSync(file, text, { mode: 0o600 });
      assert.throws(
        () => fileSigner(file),
        (error: Error & { code?: string }) =>
          error.code === "secret_unavailable" && !error.message.includes("a secret"),
      );
    }
  });

  it("an external program signs its standard input, and may answer in DER or with r and s in 32 bytes each [OFF-2]", async (t) => {
    for (const encoding of ["der", "ieee-p1363"]) {
      const { key, publicKey, signer } = program(t, `writeSync(1, signed(${JSON.stringify(encoding)}))`);
      for (let round = 0; round < 4; round++) {
        const signature = await signer().sign(DATA);
        assert.ok(isInOneForm(signature));
        assert.ok(verify("sha256", DATA, publicKey, signature));
      }
      const envelope = await signStatement(STATEMENT, signer());
      assert.equal(envelope.signatures[0]?.keyid, key.keyId);
    }
  });

  it("an external program receives its arguments unchanged, without a shell", async (t) => {
    const { folder, signer } = program(
      t,
      "writeFileSync(process.argv[2] + '.args', process.argv[3]); writeSync(1, signed('der'))",
    );
    const hostile = `$(touch ${join(folder, "by-shell")}); touch ${join(folder, "by-shell")} #`;
    await signer(join(folder, "its"), hostile).sign(DATA);
    assert.equal(readFileSync(join(folder, "its.args"), "utf8"), hostile);
    assert.equal(existsSync(join(folder, "by-shell")), false);
  });

  const WRONG: readonly (readonly [string, string, RegExp])[] = [
    ["nothing", "", /no signature/],
    ["an exit code", "writeSync(1, signed('der')); process.exit(3)", /exit code 3/],
    ["no-such-value", "writeSync(1, 'no-such-value')", /no ECDSA/],
    ["64 other bytes", "writeSync(1, Buffer.alloc(64, 7))", /does not verify/],
    ["64 zeros", "writeSync(1, Buffer.alloc(64))", /no ECDSA/],
    ["base64", "writeSync(1, signed('der').toString('base64'))", /more than a signature/],
    [
      "a line break after it",
      "writeSync(1, Buffer.concat([signed('der'), Buffer.from('\\n')]))",
      /no ECDSA|more/,
    ],
    ["a flood", "for (;;) writeSync(1, Buffer.alloc(65536))", /more than a signature/],
    [
      "a signature of something else",
      "writeSync(1, sign('sha256', Buffer.from('x'), key))",
      /does not verify/,
    ],
    ["a signal", "process.kill(process.pid, 'SIGKILL')", /SIGKILL/],
  ];
  for (const [what, body, why] of WRONG) {
    it(`a signer that returns ${what} is refused`, async (t) => {
      await assert.rejects(program(t, body).signer().sign(DATA), (error: Error & { code?: string }) => {
        assert.equal(error.code, "program_failed");
        assert.match(error.message, why);
        return true;
      });
    });
  }

  it("a missing external program is refused", async (t) => {
    const { key } = keyIn(temporaryFolder(t));
    await assert.rejects(commandSigner(["/nonexistent/signer"], key).sign(DATA), { code: "program_failed" });
    await assert.rejects(commandSigner([""], key).sign(DATA), { code: "program_failed" });
  });

  it("an external program that does not end is killed, even when a child of it holds its output open", async (t) => {
    const mute = program(t, "setInterval(() => undefined, 1000)", 400);
    await assert.rejects(mute.signer().sign(DATA), /has not ended within 400 ms/);
    const child = "const child = spawn('sleep', ['3'], { stdio: ['ignore', 1, 'ignore'] });";
    const leaving = program(t, `${child} child.unref(); writeSync(1, signed('der'));`, 700);
    await assert.rejects(leaving.signer().sign(DATA), /has not ended within 700 ms/);
  });

  it("a command ends once its signer was refused, even when a child of that one holds its output open", async (t) => {
    const { folder } = program(
      t,
      `const [, , folder] = process.argv;
       const held = { cwd: folder, detached: true, stdio: ["ignore", 1, "ignore"] };
       const child = spawn("sh", ["-c", "sleep 20; echo > ended"], held);
       child.unref();
       writeFileSync(folder + "/pid", String(child.pid));
       writeSync(1, "x".repeat(4_096));`,
    );
    const words = [process.execPath, join(folder, "signer.mjs"), folder];
    const module = (path: string) => JSON.stringify(join(ROOT, "src/records", path));
    const script = `import { readFileSync } from "node:fs";
      import { readPublicKey } from ${module("format/ecdsa-p256.ts")};
      import { commandSigner } from ${module("sign/signer.ts")};
      const key = readPublicKey(readFileSync(${JSON.stringify(join(folder, "key/records-key.pub.pem"))}, "utf8"), "");
      await commandSigner(${JSON.stringify(words)}, key).sign(Buffer.from("x")).catch((error) => console.log(error.message));`;
    const { stdout, stderr } = await run(process.execPath, ["--input-type=module", "--eval", script]);
    assert.match(stdout, /more than a signature/, stderr);
    assert.ok(!existsSync(join(folder, "ended")), "it has waited for the child");
    process.kill(-Number(readFileSync(join(folder, "pid"), "utf8")), "SIGKILL");
  });

  it("a signature by another key than the public one is refused", async (t) => {
    const { folder } = program(t, "writeSync(1, signed('der'))");
    const stranger = keyIn(join(folder, "stranger"));
    const signer = commandSigner([process.execPath, join(folder, "signer.mjs")], stranger.key);
    await assert.rejects(signer.sign(DATA), /does not verify with the public key/);
  });
});
