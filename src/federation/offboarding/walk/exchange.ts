// Passing statements on as files, and taking in what came back.
import { exportExchange, type Imported, importExchange } from "../../../records/sign/exchange.ts";
import { timestamp } from "../../reconcile/context.ts";
import type { OffboardingContext } from "../run/context.ts";
import { isSignedBy, readHeld, writeHeld } from "../run/held.ts";
import type { Run } from "../run/run.ts";
import { OffboardingBlocked } from "./blocked.ts";
import { finishRecord } from "./finish.ts";
import { removalOf, requireOpen, withRun } from "./removal.ts";
import { type RunView, viewOf } from "./view.ts";

/**
 * Everything that this organisation has signed, for the other one.
 * @throws OffboardingBlocked when it has signed nothing yet
 */
export function exportStatements(
  context: OffboardingContext,
  named?: string,
): Promise<{ readonly run: Run; readonly text: string; readonly statements: number }> {
  return withRun(context, named, async (run, trust) => {
    const removal = removalOf(run, trust);
    const { envelopes, evidence } = readHeld(run);
    const signed = envelopes.filter((envelope) => isSignedBy(envelope, run.self, trust.parties));
    if (signed.length === 0) {
      throw new OffboardingBlocked("there is nothing to pass on", [
        {
          ...{ stage: null, plane: null, condition: "signed", probe: "export" },
          found: "this organisation has signed nothing yet",
          mend: "Run drawbridge offboarding next, then drawbridge offboarding sign.",
        },
      ]);
    }
    return { run, text: exportExchange(removal, signed, evidence), statements: signed.length };
  });
}

export interface ImportResult {
  readonly run: Run;
  readonly added: Imported["added"];
  readonly recordFile: string | null;
  readonly view: RunView;
}

/**
 * Takes in a file of the other organisation, whole or not at all.
 * @throws RecordRefused with everything that is wrong; nothing is changed then
 */
export function importStatements(
  context: OffboardingContext,
  bytes: Uint8Array,
  named?: string,
): Promise<ImportResult> {
  return withRun(context, named, async (run, trust) => {
    if (run.ended?.how === "aborted") requireOpen(run);
    const held = readHeld(run);
    const imported = importExchange(bytes, removalOf(run, trust), held);
    writeHeld(run, held, imported.held, timestamp(context.federation.clock.now()));
    const recordFile = finishRecord(context, run, trust);
    return { run, added: imported.added, recordFile, view: viewOf(run, trust.parties) };
  });
}
