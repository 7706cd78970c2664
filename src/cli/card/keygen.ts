// drawbridge card keygen: makes the key pair that a card is signed with.
// Invariants: the private key is readable by this user alone from its first byte; no file is overwritten.

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { generateCardKey } from "../../cards/sign.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { defineCommand } from "../lib/command.ts";
import { printText } from "../lib/output.ts";

// The key ID names the files too.
const KEY_ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

function writeNew(path: string, text: string, mode: number): void {
  try {
    writeFileSync(path, text, { mode, flag: "wx" });
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code ?? "unknown error";
    throw new DrawbridgeError("usage", `cannot write ${path}: ${code}`, {
      hint:
        code === "EEXIST" ? "Choose another key ID: a key is never overwritten." : "Choose another folder.",
      cause,
    });
  }
}

export const command = defineCommand({
  options: [
    ["--key-id <id>", "the kid: letters, digits and . _ -, at most 128", { required: true }],
    ["-o, --output <directory>", "where to write ID.private.jwk and ID.jwks.json", { required: true }],
  ],
  help: "\nPartners pin the public key set ID.jwks.json, received by another way than the card.",
  async run(_, { keyId, output }) {
    if (!KEY_ID.test(keyId)) {
      throw new DrawbridgeError("usage", "not a usable key ID", {
        hint: "Use letters, digits and . _ -, at most 128, not starting with a dot.",
      });
    }
    const { privateJwk, publicJwk } = await generateCardKey(keyId);
    mkdirSync(output, { recursive: true, mode: 0o700 });
    const privateFile = join(output, `${keyId}.private.jwk`);
    const publicFile = join(output, `${keyId}.jwks.json`);
    writeNew(privateFile, privateJwk, 0o600);
    writeNew(publicFile, `${JSON.stringify({ keys: [publicJwk] }, undefined, 2)}\n`, 0o644);
    printText(`${privateFile}\n${publicFile}\n`);
  },
});
