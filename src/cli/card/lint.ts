// drawbridge card lint: whether every known verifier would agree on a card.
import { lintCard } from "../../cards/lint.ts";
import { findingLine, readCardFile } from "../lib/card-files.ts";
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
