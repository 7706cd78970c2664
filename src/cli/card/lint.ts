// drawbridge card lint: whether every known verifier would agree on a card; and how the file of a card is read and a fault in
// it printed.
import { statSync } from "node:fs";
import { lintCard } from "../../cards/lint.ts";
import { CARD_BYTES_MAX } from "../../cards/reject-reasons.ts";
import { readInput } from "../../runtime/read-input.ts";
import { defineCommand, print } from "../lib/command.ts";

const UNREADABLE = { at: "", rule: "unreadable", message: "the file cannot be read" } as const;

export const lintCommand = defineCommand({
  arguments: [["<card...>", "files, each an Agent Card, signed or not"]],
  options: [["--json", "print one JSON array instead"]],
  help: `
Prints "NAME ok", or a line a finding: "NAME: PLACE: RULE: what to do". Signatures are not verified.`,
  run([cards], options) {
    const results = cards.map((card) => {
      const bytes = readCardFile(card);
      return { card, findings: bytes === undefined ? [UNREADABLE] : lintCard(bytes) };
    });
    const lines = results.flatMap(({ card, findings }) =>
      findings.length === 0 ? [`${card} ok`] : findings.map((one) => findingLine(card, one)),
    );
    print(options, results, () => lines.map((line) => `${line}\n`).join(""));
    return results.some(({ findings }) => findings.length > 0) ? "failed" : "ok";
  },
});

/** A card's bytes, or undefined when it cannot be read. A file too large to be a card is cut behind the limit. */
export function readCardFile(path: string): Uint8Array | undefined {
  try {
    if (statSync(path).size > CARD_BYTES_MAX) return new Uint8Array(CARD_BYTES_MAX + 1);
    return readInput(path);
  } catch {
    return undefined;
  }
}

export function findingLine(card: string, { at, rule, message }: Record<"at" | "rule" | "message", string>) {
  return `${card}: ${at || "/"}: ${rule}: ${message}`;
}
