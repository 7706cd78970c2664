// Signing as a command's last act: what `offboarding sign` does, without typing it.
import { resolve } from "node:path";
import type { Command } from "commander";
import { DrawbridgeError } from "../domain/errors.ts";
import type { OffboardingContext } from "../federation/offboarding/run/context.ts";
import type { Run } from "../federation/offboarding/run/run.ts";
import { exportStatements } from "../federation/offboarding/walk/exchange.ts";
import { movesOf } from "../federation/offboarding/walk/moves.ts";
import { type SignResult, sign } from "../federation/offboarding/walk/sign.ts";
import type { RunView } from "../federation/offboarding/walk/view.ts";
import { PRIVATE, writeWhole } from "../runtime/write-file.ts";

export interface SigningOptions {
  readonly sign?: boolean;
  readonly export?: string;
}

/** What was signed; both empty where nothing was asked for, or nothing could be signed. */
export type Signed = Pick<SignResult, "signed" | "countersigned" | "recordFile">;

const NOTHING: Signed = { signed: [], countersigned: [], recordFile: null };

export function withSigningOptions(program: Command): Command {
  return program
    .option("--sign", "then sign everything that can be signed, as `offboarding sign` does")
    .option("--export <file>", "with --sign: then write everything that is signed, for the other one");
}

/** @throws DrawbridgeError `usage` for --export alone; before anything is done */
export function requireSigning({ sign: isAsked, export: file }: SigningOptions): void {
  if (file === undefined || isAsked === true) return;
  throw new DrawbridgeError("usage", "--export passes on what --sign has signed", {
    mend: "Add --sign; or pass on what was signed before: drawbridge offboarding export FILE.",
  });
}

/**
 * Signs if it is asked for and there is anything to sign; then passes on what is signed.
 * @throws what `sign` throws
 */
export async function signToo(
  context: OffboardingContext,
  { run, view }: { readonly run: Run; readonly view: RunView },
  options: SigningOptions,
): Promise<Signed> {
  const moves = movesOf(view);
  if (options.sign !== true || (moves.sign.length === 0 && moves.countersign.length === 0)) return NOTHING;
  const signed = await sign(context, run.run);
  await passOn(context, run, options.export);
  return signed;
}

/** Writes everything that is signed, for the other organisation. */
export async function passOn(context: OffboardingContext, { run }: Run, file?: string): Promise<void> {
  if (file === undefined) return;
  const { text } = await exportStatements(context, run);
  writeWhole(resolve(file), text, PRIVATE);
}

/** What was signed, a line each. */
export function signedLines({ self }: Run, { signed, countersigned, recordFile }: Signed): readonly string[] {
  return [
    ...signed.map((stage) => `signed: ${stage} of ${self}`),
    ...countersigned.map((place) => `countersigned: ${place}`),
    ...(recordFile === null ? [] : [`COMPLETE; the record verifies: ${recordFile}`]),
  ];
}
