// The error of a statement that may not be signed, or of a file that may not be imported, with every problem.
import { DrawbridgeError } from "../../domain/errors.ts";
import { type Problem, REASONS } from "../verify/reasons.ts";

/** One line a problem; the hint is that of the first. */
export class RecordRefused extends DrawbridgeError {
  readonly problems: readonly Problem[];

  constructor(what: string, problems: readonly Problem[]) {
    const lines = problems.map(
      ({ reason, where, detail }) =>
        `  ${reason} at ${where}${detail === undefined ? "" : ` (${detail})`}: ${REASONS[reason].sentence}`,
    );
    const [first] = problems;
    const hint = first === undefined ? {} : { hint: REASONS[first.reason].hint };
    super("record_refused", [what, ...lines].join("\n"), hint);
    this.name = "RecordRefused";
    this.problems = problems;
  }
}

/** @throws RecordRefused when there is a problem */
export function refuseUnlessClean(what: string, problems: readonly Problem[]): void {
  if (problems.length > 0) throw new RecordRefused(what, problems);
}
