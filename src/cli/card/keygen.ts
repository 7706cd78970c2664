// drawbridge card keygen: makes a key pair to sign cards with. Invariant: no key file is overwritten.
import { join } from "node:path";
import { generateCardKey } from "../../cards/sign.ts";
import { jsonText } from "../../domain/json.ts";
import { createFile, PUBLIC } from "../../runtime/write-file.ts";
import { defineCommand, parser, printText, required } from "../lib/command.ts";

// The key ID names the files too.
const usable = parser("usable key ID", (text) => /^[a-z0-9][\w.-]{0,127}$/i.exec(text)?.[0]);

export const keygenCommand = defineCommand({
  options: [
    ["--key-id <id>", "the kid: letters, digits and . _ -, at most 128", { required: true, parse: usable }],
    required("-o, --output <directory>", "where to write ID.private.jwk and ID.jwks.json"),
  ],
  help: "\nPartners pin the public key set ID.jwks.json, received by another way than the card.",
  async run(_, { keyId, output }) {
    const { privateJwk, publicJwk } = await generateCardKey(keyId);
    const privateFile = join(output, `${keyId}.private.jwk`);
    const publicFile = join(output, `${keyId}.jwks.json`);
    createFile(privateFile, privateJwk);
    createFile(publicFile, jsonText({ keys: [publicJwk] }), PUBLIC);
    printText(`${privateFile}\n${publicFile}\n`);
  },
});
