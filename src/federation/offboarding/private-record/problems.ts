// What can be wrong with a private record, told all at once.
// Invariants: every problem names its field, rule and hint; the value itself is never repeated.
import { DrawbridgeError } from "../../../domain/errors.ts";

export interface RecordProblem {
  /** Stable name of what was broken, such as `personal.mail_address`. */
  readonly rule: string;
  /** Dotted path; empty for the file as a whole and for comments. */
  readonly field: string;
  /** 1-based; 0 where no line is meant. */
  readonly line: number;
  readonly message: string;
  readonly hint: string;
}

/** A record that is refused. Nothing was written and nothing begun. */
export class RecordError extends DrawbridgeError {
  readonly problems: readonly RecordProblem[];

  constructor(file: string, problems: readonly RecordProblem[]) {
    super("config_invalid", problems.map((problem) => renderRecordProblem(file, problem)).join("\n"), {
      hint: "Correct what is named above; nothing was written or begun.",
    });
    this.name = "RecordError";
    this.problems = problems;
  }
}

function renderRecordProblem(file: string, { rule, field, line, message, hint }: RecordProblem): string {
  const where = line === 0 ? file : `${file}:${line}`;
  return `${where}: ${field === "" ? "" : `${field}: `}${message} [${rule}]\n    hint: ${hint}`;
}

/** A key as a message may show it: shortened, and without what a terminal would interpret. */
export function dotted(path: readonly PropertyKey[]): string {
  return path
    .map((step) =>
      String(step)
        .replaceAll(/[^\x21-\x7e]/g, "?")
        .slice(0, 64),
    )
    .join(".");
}
