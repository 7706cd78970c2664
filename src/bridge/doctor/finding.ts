// One finding of `drawbridge doctor`.
import { DrawbridgeError } from "../../domain/errors.ts";

export interface Finding {
  readonly name: string;
  /** `not_known`: it could not be examined, or not yet. */
  readonly state: "ok" | "not_known" | "failing";
  readonly found: string;
  /** What the operator should do; undefined when all is well. */
  readonly hint: string | undefined;
}

export const well = (name: string, found: string): Finding => ({ name, state: "ok", found, hint: undefined });

export const ill = (name: string, found: string, hint: string): Finding => ({
  ...{ name, state: "failing", found, hint },
});

export const notKnown = (name: string, found: string, hint: string): Finding => ({
  ...{ name, state: "not_known", found, hint },
});

/** A finding of an error that names its hint; any other error is thrown on. */
export function failed(name: string, error: unknown): Finding {
  if (!(error instanceof DrawbridgeError)) throw error;
  return ill(name, error.message, error.hint ?? "Correct it, then run the command again.");
}
