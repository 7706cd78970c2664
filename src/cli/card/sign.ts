// drawbridge card sign: signs a card with an ES256 key.
import { writeFileSync } from "node:fs";
import { lintCard } from "../../cards/lint.ts";
import { importSigningKey, signCard } from "../../cards/sign.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { readInput } from "../../runtime/read-input.ts";
import { defineCommand } from "../lib/command.ts";
import { printData, say } from "../lib/output.ts";

export const command = defineCommand({
  arguments: [["<card>", "the card's JSON file"]],
  options: [
    ["--key <file>", "the private key: a JWK, or PKCS #8 PEM", { required: true }],
    ["--key-id <id>", "the kid that verifiers have pinned", { required: true }],
    ["-o, --output <file>", "where to write the signed card; standard output when absent"],
  ],
  help: `
A signature under the same key ID is replaced, others are kept. Serve the result byte for byte: an SDK or
proxy that writes the card anew may break the signature. What \`card lint\` finds is printed on standard error.`,
  async run([card], options) {
    const bytes = readInput(card);
    const key = await importSigningKey(readInput(options.key).toString("utf8"));
    const result = await signCard(bytes, { key, keyId: options.keyId });
    if (!result.signed) {
      const places = result.problems.map(({ reason, at }) => `${card}: ${at || "/"}: ${reason}`);
      throw new DrawbridgeError("card_rejected", `not an A2A 1.0 card\n${places.join("\n")}`, {
        hint: "Correct the card; `drawbridge card lint` lists everything.",
      });
    }
    for (const { at, rule, message } of lintCard(bytes)) {
      say(`warning: ${card}: ${at || "/"}: ${rule}: ${message}`);
    }
    if (options.output === undefined) printData(result.bytes);
    else writeFileSync(options.output, result.bytes);
  },
});
