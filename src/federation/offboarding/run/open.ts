// Opens a run: the removal has been decided and classified, and nothing has been touched.
// Invariants: one run at a time for one counterparty; what is opened again by its ID stays as it was.

import { DrawbridgeError } from "../../../domain/errors.ts";
import { RunId } from "../../../records/format/fields.ts";
import type { Kind, Trigger } from "../../../records/format/stages.ts";
import { scopeOf } from "../../probes/from-inside.ts";
import { acceptedState, goodState } from "../../reconcile/accept-head.ts";
import { type Federation, timestamp } from "../../reconcile/context.ts";
import { findPartner } from "../../registry/partner.ts";
import { counterpartyIn, listRuns, openRunWith, type Run, writeRun } from "./run-file.ts";

export interface OpenRunOptions {
  /** The counterparty: its server name, or the name of its file in the registry. */
  readonly partner: string;
  readonly kind: Kind;
  readonly trigger: Trigger;
  readonly privateRecordFile: string;
  /** The ID that the other organisation has chosen: this one then joins its run, as the partner. */
  readonly run?: string | undefined;
}

/**
 * Opens a run, or joins one.
 * @throws DrawbridgeError `usage`, `config_invalid`
 */
export async function openRun(
  federation: Federation,
  { partner: named, kind, trigger, privateRecordFile, run: joined }: OpenRunOptions,
): Promise<Run> {
  if (kind === "emergency" && trigger !== "suspected_compromise") {
    throw new DrawbridgeError("usage", "an emergency needs a suspected compromise", {
      hint: "Use the kind full, or the trigger suspected_compromise; nothing was opened.",
    });
  }
  if (joined !== undefined && !RunId.safeParse(joined).success) {
    throw new DrawbridgeError("usage", `${JSON.stringify(joined)} is no run ID`, {
      hint: "Ask the other organisation for it: 32 hexadecimal digits. Nothing was opened.",
    });
  }
  const { clock, state, random } = federation;
  // An emergency is not kept from beginning by a head that may not be accepted; nothing of that one counts.
  const { desired } = await (kind === "emergency" ? acceptedState : goodState)(federation);
  const { partner } = findPartner(desired.registry, named);
  const own = desired.registry.organisation.serverName;
  const other = partner.serverName;
  return state.locked("offboarding", clock, async () => {
    const known = listRuns(state).find(({ run }) => run === joined);
    if (known !== undefined) return sameRun(known, { kind, trigger, other });
    const active = openRunWith(state, other);
    if (active !== undefined) {
      throw new DrawbridgeError("usage", `run ${active.run} with ${other} is open already`, {
        hint: "Go on with it (drawbridge offboarding status), or end it (drawbridge offboarding abort).",
      });
    }
    return writeRun(state, {
      version: 1,
      run: joined ?? random.bytes(16).toString("hex"),
      kind,
      trigger,
      remover: joined === undefined ? own : other,
      partner: joined === undefined ? other : own,
      self: own,
      private_record_file: privateRecordFile,
      opened_at: timestamp(clock.now()),
      baseline: { revision: desired.revision, scope: scopeOf(federation.parts, partner, desired) },
      ended: null,
    });
  });
}

function sameRun(run: Run, wanted: { kind: Kind; trigger: Trigger; other: string }): Run {
  if (run.kind === wanted.kind && run.trigger === wanted.trigger && counterpartyIn(run) === wanted.other) {
    return run;
  }
  throw new DrawbridgeError("usage", `run ${run.run} exists already, and is another removal`, {
    hint: "Compare run, kind, trigger and partner with the other organisation; nothing was changed.",
  });
}
