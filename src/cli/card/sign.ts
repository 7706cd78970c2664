// drawbridge card sign: signs a card with an ES256 key.
import { writeFileSync } from "node:fs";
import process from "node:process";
import type { Command } from "commander";
import { lintCard } from "../../cards/lint.ts";
import { signCard } from "../../cards/sign.ts";
import { importSigningKey } from "../../cards/signing-keys.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { requireFile } from "../lib/card-files.ts";
import type { CommandModule } from "../lib/command.ts";

interface Options {
  readonly key: string;
  readonly keyId: string;
  readonly output?: string;
}

export const command: CommandModule = {
  register(program: Command): void {
    program
      .argument("<card>", "the card's JSON file")
      .requiredOption("--key <file>", "the private key: a JWK, or PKCS #8 PEM")
      .requiredOption("--key-id <id>", "the kid that verifiers have pinned")
      .option("-o, --output <file>", "where to write the signed card; standard output when absent")
      .addHelpText(
        "after",
        `
A signature under the same key ID is replaced, others are kept. Serve the result byte for byte: an SDK or
proxy that writes the card anew may break the signature. What \`card lint\` finds is told on standard error.`,
      )
      .action(async (card: string, options: Options) => {
        const bytes = requireFile(card);
        const key = await importSigningKey(requireFile(options.key).toString("utf8"));
        const result = await signCard(bytes, { key, keyId: options.keyId });
        if (!result.signed) {
          const places = result.problems.map(({ reason, at }) => `${card}: ${at || "/"}: ${reason}`);
          throw new DrawbridgeError("card_rejected", `not an A2A 1.0 card\n${places.join("\n")}`, {
            hint: "Correct the card; `drawbridge card lint` lists everything.",
          });
        }
        for (const { at, rule, message } of lintCard(bytes)) {
          process.stderr.write(`warning: ${card}: ${at || "/"}: ${rule}: ${message}\n`);
        }
        if (options.output === undefined) process.stdout.write(result.bytes);
        else writeFileSync(options.output, result.bytes);
      });
  },
};
