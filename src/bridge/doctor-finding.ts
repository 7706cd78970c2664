// One thing that the doctor of a bridge looked at, and what it found.
import { DrawbridgeError } from "../domain/errors.ts";

export interface Finding {
  readonly name: string;
  /** `not_known`: it could not be looked at, or not yet. */
  readonly state: "ok" | "not_known" | "failing";
  readonly found: string;
  /** What the operator should do; undefined when all is well. */
  readonly mend: string | undefined;
}

export const well = (name: string, found: string): Finding => ({ name, state: "ok", found, mend: undefined });

export const ill = (name: string, found: string, mend: string): Finding => ({
  ...{ name, state: "failing", found, mend },
});

export const notKnown = (name: string, found: string, mend: string): Finding => ({
  ...{ name, state: "not_known", found, mend },
});

/** A finding of an error that names its mend; any other error is thrown on. */
export function failed(name: string, error: unknown): Finding {
  if (!(error instanceof DrawbridgeError)) throw error;
  return ill(name, error.message, error.mend ?? "Correct it and look again.");
}
