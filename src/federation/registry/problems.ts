// What can be wrong in a registry, reported all at once.
// Invariants: every problem names its file, line, rule and hint; a value that may be a secret is never
// repeated in one.
import { DrawbridgeError } from "../../domain/errors.ts";

export interface RegistryProblem {
  readonly file: string;
  readonly line: number;
  /** Dotted path of the key, such as `gateway.invokes.0`; empty for the whole file. */
  readonly path: string;
  /** Stable name of what was broken, such as `schema`, `duplicate_azp`, `secret.pem_block`. */
  readonly rule: string;
  readonly message: string;
  readonly hint: string;
}

/** A problem between files, whose line is still to be found. */
export interface CrossProblem extends Omit<RegistryProblem, "line" | "path"> {
  readonly path: readonly (string | number)[];
}

/** A problem as two lines of text: where and what, then what to do. */
export function renderProblem({ file, line, path, rule, message, hint }: RegistryProblem): string {
  return `${file}:${line}: ${path === "" ? "" : `${path}: `}${message} [${rule}]\n    hint: ${hint}`;
}

export class RegistryError extends DrawbridgeError {
  readonly problems: readonly RegistryProblem[];

  constructor(problems: readonly RegistryProblem[]) {
    const sorted = [...problems].sort(
      (a, b) => compare(a.file, b.file) || a.line - b.line || compare(a.path, b.path),
    );
    super("config_invalid", sorted.map(renderProblem).join("\n"), {
      hint: "Correct what is named above; nothing was rendered or changed.",
    });
    this.name = "RegistryError";
    this.problems = sorted;
  }
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
