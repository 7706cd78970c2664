// Puts the record together once both have signed everything. Invariant: a removal is said to be complete only
// when its record has been verified, by the verifier that an auditor would use.

import type { Trust } from "../../../records/format/trust.ts";
import { assembleRecord } from "../../../records/sign/assemble-record.ts";
import { timestamp } from "../../reconcile/context.ts";
import type { OffboardingContext } from "../run/context.ts";
import { readHeld } from "../run/held.ts";
import { endRun, type Run, runFile } from "../run/run.ts";
import { viewOf } from "./view.ts";

const RECORD = "record.json";

/** Where the record stands, once it does. */
export function recordFileOf(run: Run): string {
  return run.state.file(`offboarding/${run.run}`, RECORD);
}

/**
 * @returns the record's path; null while a signature is missing
 * @throws RecordRefused with every reason why it does not verify
 */
export function finishRecord(context: OffboardingContext, run: Run, trust: Trust): string | null {
  if (viewOf(run, trust.parties).completion.state !== "countersigned") return null;
  const { run: id, remover, partner } = run;
  const expected = { ...trust, expect: { remover, partner, run: id } };
  run.state.writeText(runFile(id, RECORD), assembleRecord(readHeld(run), expected));
  if (run.ended === null) {
    endRun(run, { how: "completed", reason: null, at: timestamp(context.federation.clock.now()) });
  }
  return recordFileOf(run);
}
