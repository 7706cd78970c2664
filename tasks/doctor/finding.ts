// What `./task doctor` found about one thing the project needs.

export interface Finding {
  readonly name: string;
  /** A `note` works, with a consequence worth knowing; a `problem` stops some task. */
  readonly status: "ok" | "note" | "problem";
  readonly found: string;
  /** What to do about it; absent when all is well. */
  readonly hint?: string;
}

export function ok(name: string, found: string): Finding {
  return { name, status: "ok", found };
}

export function note(name: string, found: string, hint: string): Finding {
  return { name, status: "note", found, hint };
}

export function problem(name: string, found: string, hint: string): Finding {
  return { name, status: "problem", found, hint };
}
