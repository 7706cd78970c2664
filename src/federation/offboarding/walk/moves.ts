// Whose turn it is, and what for. Pure.
// Invariants: a stage is opened only after both have signed the one before it, unless somebody gives a reason
// to go ahead; whoever waits is told for what, since when, and what the other one's command is.
import type { StageName } from "../../../records/format/stages.ts";
import type { RunView, StageView } from "./view.ts";

export interface Waiting {
  readonly for: string;
  readonly what: "countersignature" | "statement" | "completion" | "completion_countersignature";
  readonly stage: StageName | null;
  readonly since: string | null;
}

export interface Moves {
  readonly ended: "completed" | "aborted" | null;
  /** The first four planes are closed at once, before anything else. */
  readonly contain: boolean;
  /** The stage of one's own to be closed or shown. */
  readonly work: StageName | null;
  /** Stages of one's own that can be signed. */
  readonly sign: readonly StageName[];
  /** Statements of the other's that wait for this organisation's signature: stages, or `completion`. */
  readonly countersign: readonly (StageName | "completion")[];
  readonly complete: boolean;
  readonly waiting: Waiting | null;
}

const SIGNED: readonly StageView["own"]["state"][] = ["signed", "countersigned"];

export function movesOf(view: RunView, ahead = false): Moves {
  const { run, stages, completion } = view;
  const isRemover = run.self === run.remover;
  const contain = run.kind === "emergency" && view.containedAt === null;
  const countersign: (StageName | "completion")[] = stages
    .filter(({ other }) => other.state === "signed")
    .map(({ stage }) => stage);
  if (!isRemover && completion.state === "signed") countersign.push("completion");
  const isWhole = stages.every(
    ({ own, other }) => own.state === "countersigned" && other.state === "countersigned",
  );
  const moves: Moves = {
    ended: run.ended?.how ?? null,
    contain,
    work: contain ? null : workOf(stages, ahead),
    sign: signableOf(stages),
    countersign,
    complete: isRemover && isWhole && completion.state === "none",
    waiting: null,
  };
  if (run.ended !== null) {
    return { ...moves, contain: false, work: null, sign: [], countersign: [], complete: false };
  }
  const isIdle = !moves.contain && moves.work === null && moves.sign.length === 0 && countersign.length === 0;
  return isIdle && !moves.complete ? { ...moves, waiting: waitingOf(view) } : moves;
}

function workOf(stages: readonly StageView[], ahead: boolean): StageName | null {
  const begun = stages.find(({ own }) => own.state === "closing" || own.state === "proving");
  const pending = stages.findIndex(({ own }) => own.state === "pending");
  const before = stages[pending - 1];
  const mayOpen =
    pending === 0 ||
    (pending > 0 &&
      (ahead || (before?.own.state === "countersigned" && before.other.state === "countersigned")));
  const opens = mayOpen ? stages[pending] : undefined;
  const chosen = ahead ? (opens ?? begun) : (begun ?? opens);
  return chosen?.stage ?? null;
}

/** Proved, and every stage before it signed or to be signed with it. */
function signableOf(stages: readonly StageView[]): readonly StageName[] {
  const end = stages.findIndex(({ own }) => own.state !== "proved" && !SIGNED.includes(own.state));
  return stages
    .slice(0, end < 0 ? undefined : end)
    .filter(({ own }) => own.state === "proved")
    .map(({ stage }) => stage);
}

function waitingOf({ run, stages, completion }: RunView): Waiting {
  const other = run.self === run.remover ? run.partner : run.remover;
  const open = stages.find(
    ({ own, other: theirs }) => own.state !== "countersigned" || theirs.state !== "countersigned",
  );
  if (open !== undefined) {
    const what = open.own.state === "signed" ? "countersignature" : "statement";
    return { for: other, what, stage: open.stage, since: open.own.since };
  }
  const last = stages.at(-1);
  return {
    for: other,
    what: completion.state === "none" ? "completion" : "completion_countersignature",
    stage: null,
    since: completion.since ?? last?.other.since ?? null,
  };
}
