// drawbridge card verify: is each of these cards signed by one of these keys?

import type { PinnedKey } from "../../cards/pinned-keys.ts";
import { REJECT_REASONS, type RejectReason } from "../../cards/reject-reasons.ts";
import { verifyCard } from "../../cards/verify.ts";
import { readCardFile, readJwkSet } from "../lib/card-input.ts";
import { defineCommand } from "../lib/command.ts";
import { ExitCode } from "../lib/exit-codes.ts";
import { print } from "../lib/output.ts";

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

export const command = defineCommand({
  arguments: [["<card...>", "files, each an Agent Card as it is served"]],
  options: [
    [
      "--jwks <file>",
      "the trusted public keys, a JWK set; only EC P-256 keys with a kid are used",
      { required: true },
    ],
    ["--json", "print one JSON array instead, with key ID, digest and place"],
  ],
  help: `
Prints one line a card, in the order given: "NAME accept" or "NAME reject REASON". Exit code 1 when a card
is rejected. Reasons: ${["unreadable", ...REJECT_REASONS].join(", ")}.`,
  async run([cards], options) {
    const pinned = await readJwkSet(options.jwks);
    const results: CardResult[] = [];
    for (const card of cards) results.push(await verifyFile(card, pinned));
    print(options, results, () =>
      results.map((one) => `${one.card} ${one.accepted ? "accept" : `reject ${one.reason}`}\n`).join(""),
    );
    return results.every(({ accepted }) => accepted) ? ExitCode.ok : ExitCode.failed;
  },
});
