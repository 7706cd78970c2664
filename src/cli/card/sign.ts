// drawbridge card sign: signs a card with an ES256 key.
import { writeFileSync } from "node:fs";
import { lintCard } from "../../cards/lint.ts";
import { importSigningKey, signCard } from "../../cards/sign.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { membersOf, parseJson } from "../../domain/json.ts";
import { readInput } from "../../runtime/read-input.ts";
import { readSecret } from "../../runtime/secrets.ts";
import { defineCommand, printData, required, say } from "../lib/command.ts";
import { findingLine } from "./lint.ts";

export const signCommand = defineCommand({
  arguments: [["<card>", "the card's JSON file"]],
  options: [
    required("--key <file>", "the private key: a JWK, or PKCS #8 PEM"),
    required("--key-id <id>", "the kid that verifiers have pinned; a JWK that names another is refused"),
    ["-o, --output <file>", "where to write the signed card; standard output when absent"],
  ],
  help: `
A signature under the same key ID is replaced, others are kept. Serve the result byte for byte: an SDK or
proxy that writes the card anew may break the signature. What \`card lint\` finds is printed on standard error.`,
  async run([card], options) {
    const bytes = readInput(card);
    const text = readSecret({ file: options.key }, "");
    const key = await importSigningKey(text);
    const { kid = options.keyId } = membersOf(parseJson(text));
    if (kid !== options.keyId) {
      throw new DrawbridgeError("usage", `the key in ${options.key} has another kid than --key-id`, {
        hint: "Give the kid that verifiers have pinned for this key.",
      });
    }
    const result = await signCard(bytes, { key, keyId: options.keyId });
    if (!result.signed) {
      const places = result.problems.map(({ reason, at }) => `${card}: ${at || "/"}: ${reason}`);
      throw new DrawbridgeError("card_rejected", `not an A2A 1.0 card\n${places.join("\n")}`, {
        hint: "Correct the card; `drawbridge card lint` lists everything.",
      });
    }
    for (const finding of lintCard(bytes)) say(`warning: ${findingLine(card, finding)}`);
    if (options.output === undefined) printData(result.bytes);
    else writeFileSync(options.output, result.bytes);
  },
});
