// drawbridge verify: does this record prove that one organisation was removed from another?
// Invariant: it contacts nobody; the record file and the trust file are all that it reads.
import { readFileSync } from "node:fs";
import process from "node:process";
import type { Command } from "commander";
import { DrawbridgeError } from "../domain/errors.ts";
import { loadTrust } from "../records/format/trust.ts";
import { verifyRecord } from "../records/verify/verify-record.ts";
import { type CommandModule, ExitCode } from "./lib/command.ts";
import { renderJson } from "./lib/output.ts";
import { renderReport } from "./lib/verify-report.ts";

export const command: CommandModule = {
  register(program: Command): void {
    program
      .argument("<record>", "the record file that both organisations signed")
      .requiredOption("--trust <file>", "YAML: both organisations' public keys, and what is expected")
      .option("--json", "print everything that was found as one JSON object")
      .addHelpText(
        "after",
        `
Works offline. Prints what is proved and who saw it, what is only attested, what is missing; if it does not
verify, every reason with its hint. docs/reference/offboarding-records.md explains each.

Exit codes:
  0  verified
  1  not verified
  2  the command line, the trust file or a key is wrong, or the record cannot be read`,
      )
      .action((record: string, options: { trust: string; json?: true }) => {
        const report = verifyRecord(readRecord(record), loadTrust(options.trust));
        process.stdout.write(options.json ? renderJson(report) : renderReport(report));
        if (!report.verified) process.exitCode = ExitCode.failed;
      });
  },
};

function readRecord(file: string): Buffer {
  try {
    return readFileSync(file);
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code ?? "unknown error";
    if (code === "ENOENT") {
      throw new DrawbridgeError("usage", `there is no ${file}`, {
        hint: "If it was moved, name it where it is now; if it was deleted, the other organisation holds the same record, or restore it from a backup. If this removal has not ended yet, there is none: a record is written once both organisations have signed the completion, and drawbridge offboarding status says what is left.",
        cause,
      });
    }
    throw new DrawbridgeError("usage", `cannot read ${file}: ${code}`, {
      hint: "Check the path and that this user may read the file.",
      cause,
    });
  }
}
