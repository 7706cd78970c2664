// drawbridge verify: does this record prove that one organisation was removed from another?
// Invariant: it contacts no server; the record file and the trust file are all that it reads.
import { loadTrust } from "../records/format/trust.ts";
import type { RecordOutcome } from "../records/verify/report.ts";
import { verifyRecord } from "../records/verify/verify-record.ts";
import { readInput } from "../runtime/read-input.ts";
import { defineCommand, required } from "./lib/command.ts";
import { ExitCode } from "./lib/exit-codes.ts";
import { print } from "./lib/output.ts";
import { renderReport } from "./lib/verify-report.ts";

export const command = defineCommand({
  arguments: [["<record>", "the record file that both organisations signed"]],
  options: [
    required("--trust <file>", "YAML: both organisations' public keys, and what is expected"),
    ["--json", "print everything that was found as one JSON object"],
  ],
  help: `
Works offline. Evaluates the evidence by the table of conditions (docs/reference/conditions.md), and prints what is
proved and who saw it, what is only attested, what is missing; if it does not verify, every reason with its hint.
docs/reference/offboarding-records.md explains each.

The exit code of a record:
  0  verified
  1  not verified
  2  the command line, the trust file or a key is wrong, or the record cannot be read
  5  everything that the two manage is closed, and they do not manage every part; what is left is named
  6  unilateral: the remover's side is closed, and the partner has shown nothing closed`,
  run([file], options) {
    const report = verifyRecord(readInput(file, ABSENT, "usage"), loadTrust(options.trust));
    print(options, report, () => renderReport(report));
    return EXIT_CODES[report.outcome];
  },
});

const EXIT_CODES: Readonly<Record<RecordOutcome, ExitCode>> = {
  verified: ExitCode.ok,
  incomplete: ExitCode.incomplete,
  unilateral: ExitCode.unilateral,
  not_verified: ExitCode.failed,
};

const ABSENT =
  "If it was moved, name it where it is now; if it was deleted, the other organisation holds the same record, or restore it from a backup. If this removal has not ended yet, there is none: a record is written once both organisations have signed the completion, and drawbridge offboarding status says what is left.";
