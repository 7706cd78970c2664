// drawbridge card verify: verifies cards against trusted keys.
import { REJECT_REASONS } from "../../cards/reject-reasons.ts";
import { importJwkSet, type PinnedKey, verifyCard } from "../../cards/verify.ts";
import { readInput } from "../../runtime/read-input.ts";
import { defineCommand, print, required } from "../lib/command.ts";
import { readCardFile } from "./lint.ts";

async function verifyFile(card: string, pinned: readonly PinnedKey[]) {
  const bytes = readCardFile(card);
  if (bytes === undefined) return { card, accepted: false, reason: "unreadable" } as const;
  const verdict = await verifyCard(bytes, pinned);
  if (!verdict.accepted) return { card, ...verdict };
  return { card, accepted: true, keyId: verdict.keyId, digest: verdict.digest } as const;
}

export const verifyCommand = defineCommand({
  arguments: [["<card...>", "files, each an Agent Card as it is served"]],
  options: [
    required("--jwks <file>", "the trusted public keys, a JWK set; only EC P-256 keys with a kid are used"),
    ["--json", "print one JSON array instead, with key ID, digest and place"],
  ],
  help: `
Prints one line a card, in the order given: "NAME accept" or "NAME reject REASON". Exit code 1 when a card
is rejected. Reasons: ${["unreadable", ...REJECT_REASONS].join(", ")}.`,
  async run([cards], options) {
    const pinned = await importJwkSet(readInput(options.jwks), options.jwks);
    const results: Awaited<ReturnType<typeof verifyFile>>[] = [];
    for (const card of cards) results.push(await verifyFile(card, pinned));
    print(options, results, () =>
      results.map((one) => `${one.card} ${one.accepted ? "accept" : `reject ${one.reason}`}\n`).join(""),
    );
    return results.every(({ accepted }) => accepted) ? "ok" : "failed";
  },
});
