// drawbridge card lint: would every known verifier agree on these cards?
import process from "node:process";
import type { Command } from "commander";
import { lintCard } from "../../cards/lint.ts";
import { readCardFile } from "../lib/card-files.ts";
import { type CommandModule, ExitCode } from "../lib/command.ts";
import { renderJson } from "../lib/output.ts";

const UNREADABLE = { at: "", rule: "unreadable", message: "the file cannot be read" } as const;

export const command: CommandModule = {
  register(program: Command): void {
    program
      .argument("<card...>", "files, each an Agent Card, signed or not")
      .option("--json", "print one JSON array instead")
      .addHelpText(
        "after",
        `
Prints "NAME ok", or a line a finding: "NAME: PLACE: RULE: what to do". Signatures are not verified.`,
      )
      .action((cards: string[], options: { json?: true }) => {
        const results = cards.map((card) => {
          const bytes = readCardFile(card);
          return { card, findings: bytes === undefined ? [UNREADABLE] : lintCard(bytes) };
        });
        if (options.json) process.stdout.write(renderJson(results));
        else {
          for (const { card, findings } of results) {
            if (findings.length === 0) process.stdout.write(`${card} ok\n`);
            for (const { at, rule, message } of findings) {
              process.stdout.write(`${card}: ${at || "/"}: ${rule}: ${message}\n`);
            }
          }
        }
        if (results.some(({ findings }) => findings.length > 0)) process.exitCode = ExitCode.failed;
      });
  },
};
