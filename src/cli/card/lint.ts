// drawbridge card lint: would every known verifier agree on these cards?
import { lintCard } from "../../cards/lint.ts";
import { readCardFile } from "../lib/card-input.ts";
import { defineCommand } from "../lib/command.ts";
import { ExitCode } from "../lib/exit-codes.ts";
import { print } from "../lib/output.ts";

const UNREADABLE = { at: "", rule: "unreadable", message: "the file cannot be read" } as const;

export const command = defineCommand({
  arguments: [["<card...>", "files, each an Agent Card, signed or not"]],
  options: [["--json", "print one JSON array instead"]],
  help: `
Prints "NAME ok", or a line a finding: "NAME: PLACE: RULE: what to do". Signatures are not verified.`,
  run([cards], options) {
    const results = cards.map((card) => {
      const bytes = readCardFile(card);
      return { card, findings: bytes === undefined ? [UNREADABLE] : lintCard(bytes) };
    });
    print(options, results, () =>
      results
        .flatMap(({ card, findings }) =>
          findings.length === 0
            ? [`${card} ok\n`]
            : findings.map(({ at, rule, message }) => `${card}: ${at || "/"}: ${rule}: ${message}\n`),
        )
        .join(""),
    );
    return results.some(({ findings }) => findings.length > 0) ? ExitCode.failed : ExitCode.ok;
  },
});
