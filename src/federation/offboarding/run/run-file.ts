// One removal as this organisation runs it, in a folder of its own below the state folder.
// Invariants: a file is whole or absent; what a run is about never changes after it was opened; it ends once,
// completed or aborted. No field holds content, a secret or a personal contact.

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
import type { StateFolder } from "../../state/folder.ts";

const RunFile = z.strictObject({
  version: z.literal(1),
  run: RunId,
  kind: z.enum(KINDS),
  trigger: z.enum(TRIGGERS),
  /** The organisation that decided. */
  remover: OrganisationName,
  partner: OrganisationName,
  /** This organisation: one of the two. */
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

/** The path of one of a run's files, in the state folder. */
export function runFile(run: string, name: string): string {
  return `${FOLDER}/${run}/${name}`;
}

/** The organisation on the other side. */
export function counterpartyIn(run: Pick<RunFile, "self" | "remover" | "partner">): string {
  return counterpartyOf(run.self, run);
}

/** Writes a run's file, whole. */
export function writeRun(state: StateFolder, file: RunFile): Run {
  state.write(runFile(file.run, RUN_FILE), file);
  return { ...file, state };
}

export function endRun({ state, ...file }: Run, ended: NonNullable<RunFile["ended"]>): Run {
  return writeRun(state, { ...file, ended });
}

/** Every run of this organisation, the oldest first. */
export function listRuns(state: StateFolder): readonly Run[] {
  return state
    .folders(FOLDER)
    .flatMap((name) => state.read(RunFile, runFile(name, RUN_FILE)) ?? [])
    .map((file): Run => ({ ...file, state }))
    .sort((left, right) => (left.opened_at < right.opened_at ? -1 : 1));
}

/** The runs with one counterparty, the oldest first. */
export function runsWith(state: StateFolder, counterparty: string): readonly Run[] {
  return listRuns(state).filter((run) => counterpartyIn(run) === counterparty);
}

/** The one with this counterparty that has not ended; there is one at most. */
export function openRunWith(state: StateFolder, counterparty: string): Run | undefined {
  return runsWith(state, counterparty).find(({ ended }) => ended === null);
}

/**
 * The run that is named, by its ID or as the open one with a counterparty; where none is named, the only open run,
 * or else the last.
 * @throws DrawbridgeError `usage`
 */
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
  const choices = (second === undefined ? runs : found).map((run) => `${run.run} (${counterpartyIn(run)})`);
  const message =
    named !== undefined
      ? `there is no run ${JSON.stringify(named)} here`
      : runs.length === 0
        ? "there is no run here"
        : "several runs are open";
  throw new DrawbridgeError("usage", message, {
    hint:
      runs.length === 0
        ? "Open one: drawbridge offboarding open."
        : `Name one with --run-id: ${choices.join(", ")}.`,
  });
}
