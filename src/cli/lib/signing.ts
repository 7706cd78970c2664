// Signing as the last step of `offboarding next` and `offboarding import`, and writing what is signed to a file for
// the other organisation.

import { resolve } from "node:path";
import { DrawbridgeError } from "../../domain/errors.ts";
import { type OffboardingContext, signerOf } from "../../federation/offboarding/run/context.ts";
import type { Run } from "../../federation/offboarding/run/run.ts";
import { exportStatements } from "../../federation/offboarding/workflow/exchange.ts";
import { type SignResult, sign } from "../../federation/offboarding/workflow/sign.ts";
import { type RunView, stepsOf } from "../../federation/offboarding/workflow/view.ts";
import { PRIVATE, writeWhole } from "../../runtime/write-file.ts";
import { renderError } from "./exit-codes.ts";
import { printError } from "./output.ts";

export const EXPORT_OPTION = [
  "--export <file>",
  "then write everything that is signed, for the other organisation",
] as const;
export const SIGNING_OPTIONS = [
  ["--sign", "then sign everything that can be signed, as `offboarding sign` does"],
  ["--export <file>", "with --sign: then write everything that is signed, for the other organisation"],
] as const;

export interface SigningOptions {
  readonly sign?: boolean | undefined;
  readonly export?: string | undefined;
}

/** What was signed; empty without --sign, or where nothing could be signed. */
export interface Signed extends Pick<SignResult, "signed" | "countersigned" | "recordFile"> {
  /** Why something that was to be signed was not. What the command itself did stands, and is to be said first. */
  readonly failure: unknown;
}

const NOTHING: Signed = { signed: [], countersigned: [], recordFile: null, failure: undefined };
const SIGNED: readonly string[] = ["signed", "countersigned"];

/**
 * Before anything is done.
 * @throws DrawbridgeError `usage` for --export alone; `secret_unavailable` when the signing key cannot be used
 */
export function requireSigning(
  { config }: OffboardingContext,
  { sign: isAsked, export: file }: SigningOptions,
): void {
  if (isAsked === true) signerOf(config);
  else if (file !== undefined) {
    throw new DrawbridgeError("usage", "--export passes on what --sign has signed", {
      hint: "Add --sign; or pass on what was signed before: drawbridge offboarding export FILE.",
    });
  }
}

/** Signs if --sign is given and there is anything to sign; then exports what is signed, now or before. */
export async function signIfAsked(
  context: OffboardingContext,
  { run, view }: { readonly run: Run; readonly view: RunView },
  options: SigningOptions,
): Promise<Signed> {
  if (options.sign !== true) return NOTHING;
  const moves = stepsOf(view);
  const canSign = moves.sign.length > 0 || moves.countersign.length > 0;
  let done: Omit<Signed, "failure"> = NOTHING;
  try {
    if (canSign) done = await sign(context, run.run);
    // Also when a command that was killed had signed it.
    const isAnySigned = canSign || view.stages.some(({ own }) => SIGNED.includes(own.state));
    if (isAnySigned) await exportIfNamed(context, run, options.export);
    return { ...done, failure: undefined };
  } catch (failure) {
    return { ...done, failure };
  }
}

/** Writes everything that is signed to a file for the other organisation, if one is named. */
export async function exportIfNamed(
  context: OffboardingContext,
  { run }: Run,
  file: string | undefined,
): Promise<void> {
  if (file !== undefined) writeExport(file, (await exportStatements(context, run)).text);
}

/**
 * @returns the file's absolute path
 * @throws DrawbridgeError `usage` when it cannot be written
 */
export function writeExport(file: string, text: string): string {
  const path = resolve(file);
  try {
    writeWhole(path, text, PRIVATE);
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code ?? "unknown error";
    throw new DrawbridgeError("usage", `cannot write ${path}: ${code}`, {
      hint: "Name a file in a folder that this user may write to: drawbridge offboarding export FILE.",
      cause,
    });
  }
  return path;
}

/** Reports why something was not signed, after what was done. @returns whether anything was not signed */
export function reportFailure({ failure }: Signed): boolean {
  if (failure !== undefined) printError(renderError(failure));
  return failure !== undefined;
}

/** What was signed, a line each. */
export function signedLines(
  { self }: Run,
  { signed, countersigned, recordFile }: Omit<Signed, "failure">,
): readonly string[] {
  return [
    ...signed.map((stage) => `signed: ${stage} of ${self}`),
    ...countersigned.map((place) => `countersigned: ${place}`),
    ...(recordFile === null ? [] : [`COMPLETE; the record verifies: ${recordFile}`]),
  ];
}
