// drawbridge card verify: is each of these cards signed by one of these keys?
import process from "node:process";
import type { Command } from "commander";
import type { PinnedKey } from "../../cards/pinned-keys.ts";
import { REJECT_REASONS, type RejectReason } from "../../cards/reasons.ts";
import { verifyCard } from "../../cards/verify.ts";
import { readCardFile, readJwkSet } from "../lib/card-files.ts";
import { type CommandModule, ExitCode } from "../lib/command.ts";
import { renderJson } from "../lib/output.ts";

type CardResult =
  | { readonly card: string; readonly accepted: true; readonly keyId: string; readonly digest: string }
  | {
      readonly card: string;
      readonly accepted: false;
      readonly reason: RejectReason | "unreadable";
      readonly at?: string;
    };

async function verifyFile(card: string, pinned: readonly PinnedKey[]): Promise<CardResult> {
  const bytes = readCardFile(card);
  if (bytes === undefined) return { card, accepted: false, reason: "unreadable" };
  const verdict = await verifyCard(bytes, pinned);
  if (!verdict.accepted) return { card, accepted: false, reason: verdict.reason, at: verdict.at };
  return { card, accepted: true, keyId: verdict.keyId, digest: verdict.digest };
}

export const command: CommandModule = {
  register(program: Command): void {
    program
      .argument("<card...>", "files, each an Agent Card as it is served")
      .requiredOption(
        "--jwks <file>",
        "the trusted public keys, a JWK set; only EC P-256 keys with a kid are used",
      )
      .option("--json", "print one JSON array instead, with key ID, digest and place")
      .addHelpText(
        "after",
        `
Prints one line a card, in the order given: "NAME accept" or "NAME reject REASON". Exit code 1 when a card
is rejected. Reasons: ${["unreadable", ...REJECT_REASONS].join(", ")}.`,
      )
      .action(async (cards: string[], options: { jwks: string; json?: true }) => {
        const pinned = await readJwkSet(options.jwks);
        const results: CardResult[] = [];
        for (const card of cards) {
          const result = await verifyFile(card, pinned);
          results.push(result);
          if (options.json) continue;
          process.stdout.write(`${card} ${result.accepted ? "accept" : `reject ${result.reason}`}\n`);
        }
        if (options.json) process.stdout.write(renderJson(results));
        if (results.some((result) => !result.accepted)) process.exitCode = ExitCode.failed;
      });
  },
};
