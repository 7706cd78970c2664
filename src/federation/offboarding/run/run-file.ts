// One removal as this organisation runs it, in a folder of its own below the state folder; and how it is opened.
// Invariants: one run at a time for one counterparty; what a run is about never changes after it was opened; it ends once,
// completed or aborted. No field holds content, a secret or a personal contact.

import { readdirSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { DrawbridgeError } from "../../../domain/errors.ts";
import {
  GitRevision,
  Instant,
  OrganisationName,
  RunId,
  Scope,
  Word,
} from "../../../records/format/fields.ts";
import { counterpartyOf, KINDS, TRIGGERS } from "../../../records/format/stages.ts";
import { scopeOf } from "../../probes/from-inside.ts";
import { acceptedState, goodState } from "../../reconcile/accept-head.ts";
import { type Federation, timestamp } from "../../reconcile/context.ts";
import { findPartner } from "../../registry/partner.ts";
import type { StateFolder } from "../../state/folder.ts";

const RunFile = z.strictObject({
  version: z.literal(1),
  run: RunId,
  kind: z.enum(KINDS),
  trigger: z.enum(TRIGGERS),
  remover: OrganisationName,
  partner: OrganisationName,
  self: OrganisationName,
  /** Outside version control; it never leaves this machine. */
  private_record_file: z.string().min(1),
  opened_at: Instant,
  /** What was declared when the run was opened: a removal that is not partial has to cover all of it. */
  baseline: z.strictObject({ revision: GitRevision, scope: Scope }),
  ended: z
    .strictObject({ how: z.enum(["completed", "aborted"]), reason: Word.nullable(), at: Instant })
    .nullable(),
});
export type RunFile = z.output<typeof RunFile>;

export interface Run extends RunFile {
  readonly state: StateFolder;
}

const FOLDER = "offboarding";
const RUN_FILE = "run.json";

export function runFile(run: string, name: string): string {
  return `${FOLDER}/${run}/${name}`;
}

export function counterpartyIn(run: Pick<RunFile, "self" | "remover" | "partner">): string {
  return counterpartyOf(run.self, run);
}

export function writeRun(state: StateFolder, file: RunFile): Run {
  state.write(runFile(file.run, RUN_FILE), file);
  return { ...file, state };
}

export function endRun({ state, ...file }: Run, ended: NonNullable<RunFile["ended"]>): Run {
  return writeRun(state, { ...file, ended });
}

/** Every run, the oldest first. @throws DrawbridgeError `state_unreadable` for a folder that may be an open removal */
export function listRuns(state: StateFolder): readonly Run[] {
  return state
    .folders(FOLDER)
    .flatMap((name) => readRun(state, name) ?? [])
    .sort((left, right) => (left.opened_at < right.opened_at ? -1 : 1));
}

/** Undefined where a kill has kept a run from being opened. */
function readRun(state: StateFolder, name: string): Run | undefined {
  const file = state.read(RunFile, runFile(name, RUN_FILE));
  if (file?.run === name) return { ...file, state };
  const folder = join(state.path, FOLDER, name);
  if (!isBegun(folder)) return undefined;
  const what = file === undefined ? "has no run.json" : `is a copy of run ${file.run}`;
  throw new DrawbridgeError("state_unreadable", `${folder} ${what}`, {
    hint: "Put back what is missing from a backup, or move a copy out of there.",
  });
}

/** Whether a folder holds more than what is written while a run is opened; one that cannot be read may. */
function isBegun(folder: string): boolean {
  try {
    return readdirSync(folder).some((name) => !name.startsWith(`${RUN_FILE}.`));
  } catch {
    return true;
  }
}

export function runsWith(state: StateFolder, counterparty: string): readonly Run[] {
  return listRuns(state).filter((run) => counterpartyIn(run) === counterparty);
}

export function openRunWith(state: StateFolder, counterparty: string): Run | undefined {
  return runsWith(state, counterparty).find(({ ended }) => ended === null);
}

/** By its ID, or the open one with a counterparty; unnamed, the only open one or else the last. @throws DrawbridgeError `usage` */
export function findRun(state: StateFolder, named?: string): Run {
  const runs = listRuns(state);
  const open = runs.filter(({ ended }) => ended === null);
  const found =
    named !== undefined
      ? [...runs.filter(({ run }) => run === named), ...open.filter((run) => counterpartyIn(run) === named)]
      : open.length === 0
        ? runs.slice(-1)
        : open;
  const [only, second] = found;
  if (only !== undefined && second === undefined) return only;
  const none = named === undefined ? "there is no run here" : `there is no run ${JSON.stringify(named)} here`;
  const choices = (second === undefined ? runs : found).map((run) => `${run.run} (${counterpartyIn(run)})`);
  const isAmbiguous = named === undefined && second !== undefined;
  throw new DrawbridgeError("usage", isAmbiguous ? "several runs are open" : none, {
    hint:
      runs.length === 0
        ? "Open one: drawbridge offboarding open."
        : `Name one with --run-id: ${choices.join(", ")}.`,
  });
}

interface OpenRunOptions extends Pick<RunFile, "kind" | "trigger"> {
  readonly partner: string;
  readonly privateRecordFile: string;
  /** The ID that the other organisation has chosen: this one then joins its run, as the partner. */
  readonly run?: string | undefined;
}

/** Opens a run, or joins one. @throws DrawbridgeError `usage`, `config_invalid` */
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
    if (known !== undefined) {
      if (known.kind === kind && known.trigger === trigger && counterpartyIn(known) === other) return known;
      throw new DrawbridgeError("usage", `run ${known.run} exists already, and is another removal`, {
        hint: "Compare run, kind, trigger and partner with the other organisation; nothing was changed.",
      });
    }
    const active = openRunWith(state, other);
    if (active !== undefined) {
      throw new DrawbridgeError("usage", `run ${active.run} with ${other} is open already`, {
        hint: "Go on with it (drawbridge offboarding status), or end it (drawbridge offboarding abort).",
      });
    }
    return writeRun(state, {
      ...{ version: 1, run: joined ?? random.bytes(16).toString("hex"), kind, trigger, self: own },
      ...(joined === undefined ? { remover: own, partner: other } : { remover: other, partner: own }),
      ...{ private_record_file: privateRecordFile, opened_at: timestamp(clock.now()), ended: null },
      baseline: { revision: desired.revision, scope: scopeOf(federation.parts, partner, desired) },
    });
  });
}
