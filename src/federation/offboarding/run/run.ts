// One removal as this organisation remembers it, in a folder of its own below the state folder.
// Invariants: a file is whole or absent; what a run is about never changes after it was opened; it ends once,
// completed or aborted. No field holds content, a secret or a personal contact.
import { z } from "zod";
import { DrawbridgeError } from "../../../domain/errors.ts";
import {
  Digest,
  GitRevision,
  Instant,
  OrganisationName,
  RunId,
  Word,
} from "../../../records/format/fields.ts";
import { KINDS, TRIGGERS } from "../../../records/format/stages.ts";
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
  privateRecordFile: z.string().min(1),
  openedAt: Instant,
  /** What was declared when the run was opened. */
  baseline: z.strictObject({
    revision: GitRevision,
    policyDigest: Digest.nullable(),
    /** Whether that policy kept the counterparty out already. */
    policyExcluded: z.boolean(),
  }),
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
export function counterpartyOf({
  self,
  remover,
  partner,
}: Pick<Run, "self" | "remover" | "partner">): string {
  return self === remover ? partner : remover;
}

/** The run's first write: afterwards it is there, and whole. */
export function createRun(state: StateFolder, record: RunFile): Run {
  state.write(runFile(record.run, RUN_FILE), record);
  return { ...record, state };
}

export function endRun(run: Run, ended: NonNullable<RunFile["ended"]>): Run {
  const { state, ...record } = run;
  state.write(runFile(run.run, RUN_FILE), { ...record, ended });
  return { ...run, ended };
}

/** Every run of this organisation, the oldest first. */
export function listRuns(state: StateFolder): readonly Run[] {
  return state
    .folders(FOLDER)
    .flatMap((name) => readRun(state, name) ?? [])
    .sort((left, right) => (left.openedAt < right.openedAt ? -1 : 1));
}

/** The runs with one counterparty, the oldest first. */
export function runsWith(state: StateFolder, counterparty: string): readonly Run[] {
  return listRuns(state).filter((run) => counterpartyOf(run) === counterparty);
}

/** The one with this counterparty that has not ended; there is one at most. */
export function openRunWith(state: StateFolder, counterparty: string): Run | undefined {
  return runsWith(state, counterparty).find(({ ended }) => ended === null);
}

function readRun(state: StateFolder, name: string): Run | undefined {
  const record = state.read(RunFile, runFile(name, RUN_FILE));
  return record === undefined ? undefined : { ...record, state };
}

/**
 * The run that is meant: the one named, or else the only one that has not ended, or else the last.
 * @throws DrawbridgeError `usage`
 */
export function findRun(state: StateFolder, named?: string): Run {
  const runs = listRuns(state);
  if (named !== undefined) {
    const found = runs.filter(({ run, remover, partner, self, ended }) => {
      const other = self === remover ? partner : remover;
      return run === named || (other === named && ended === null);
    });
    if (found.length === 1 && found[0] !== undefined) return found[0];
    throw new DrawbridgeError("usage", `there is no run ${JSON.stringify(named)} here`, {
      hint:
        runs.length === 0
          ? "Open one: drawbridge offboarding open."
          : `Name one of ${runs.map(({ run }) => run).join(", ")}.`,
    });
  }
  const active = runs.filter(({ ended }) => ended === null);
  const [only, second] = active.length === 0 ? runs.slice(-1) : active;
  if (only !== undefined && second === undefined) return only;
  throw new DrawbridgeError("usage", only === undefined ? "there is no run here" : "several runs are open", {
    hint:
      only === undefined
        ? "Open one: drawbridge offboarding open."
        : `Name one with --run-id: ${active.map(({ run, remover, partner, self }) => `${run} (${self === remover ? partner : remover})`).join(", ")}.`,
  });
}
