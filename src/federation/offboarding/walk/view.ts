// Where a run stands, from its files alone. Pure but for reading them.
// Invariant: a state is never stored; it follows from what is there: a record, a commit, a proof, signatures.
import { z } from "zod";
import { Instant } from "../../../records/format/fields.ts";
import {
  PLANE_OF_STAGE,
  STAGE_NAMES,
  STAGES_LEFT_ALONE,
  type StageName,
} from "../../../records/format/stages.ts";
import type { TrustedParty } from "../../../records/format/trust.ts";
import { placeOf } from "../../../records/verify/stage.ts";
import { envelopeAt, type Held, isSignedBy, readHeld, signedSince } from "../run/held.ts";
import { counterpartyOf, type Run, runFile } from "../run/run.ts";
import { type Proof, readStage, type StageRecord } from "../run/stage-record.ts";
import { readWaivers, type Waiver } from "../run/waivers.ts";
import { allHold } from "../stages/judge.ts";

/** `closing`: begun, and not known to be committed; `proving`: closed, and not shown yet. */
export type StageState = "pending" | "closing" | "proving" | "proved" | "signed" | "countersigned";
/** What is known here of the other organisation's part. */
export type OtherState = "unknown" | "signed" | "countersigned";

export interface StageView {
  readonly stage: StageName;
  readonly own: { readonly state: StageState; readonly since: string | null };
  readonly other: { readonly state: OtherState; readonly since: string | null };
  readonly record: StageRecord | undefined;
  /** Out of reach, and waived by nobody yet. */
  readonly unwaived: Proof["outOfReach"];
}

export interface RunView {
  readonly run: Run;
  readonly stages: readonly StageView[];
  readonly completion: { readonly state: "none" | "signed" | "countersigned"; readonly since: string | null };
  /** Of an emergency: when the first four planes were closed at once; null before, and for other kinds. */
  readonly containedAt: string | null;
  readonly held: Held;
  readonly waivers: ReadonlyMap<string, Waiver>;
}

const CONTAINMENT = "containment.json";
const Containment = z.strictObject({ version: z.literal(1), at: Instant });

export function markContained(run: Run, at: string): void {
  run.state.write(runFile(run.run, CONTAINMENT), { version: 1, at });
}

export function isLeftAlone({ kind }: Pick<Run, "kind">, stage: StageName): boolean {
  return STAGES_LEFT_ALONE[kind].includes(stage);
}

export function viewOf(run: Run, parties: readonly TrustedParty[]): RunView {
  const held = readHeld(run);
  const waivers = readWaivers(run);
  const other = counterpartyOf(run);
  const stages = STAGE_NAMES.map((stage): StageView => {
    const record = readStage(run, stage);
    const unwaived = (record?.proof?.outOfReach ?? []).filter(({ subject }) => !waivers.has(subject));
    return {
      stage,
      own: ownState(run, stage, record, unwaived, held, parties),
      other: signedState(held, placeOf({ organisation: other, stage }), other, run.self, parties),
      record,
      unwaived,
    };
  });
  const completion = signedState(held, "completion", run.remover, run.partner, parties);
  return {
    run,
    stages,
    completion: { ...completion, state: completion.state === "unknown" ? "none" : completion.state },
    containedAt: run.state.read(Containment, runFile(run.run, CONTAINMENT))?.at ?? null,
    held,
    waivers,
  };
}

function ownState(
  run: Run,
  stage: StageName,
  record: StageRecord | undefined,
  unwaived: Proof["outOfReach"],
  held: Held,
  parties: readonly TrustedParty[],
): StageView["own"] {
  const place = placeOf({ organisation: run.self, stage });
  const signed = signedState(held, place, run.self, counterpartyOf(run), parties);
  if (signed.state !== "unknown") return { ...signed, state: signed.state };
  if (record === undefined) return { state: "pending", since: null };
  const { proof, openedAt, commit } = record;
  if (proof !== null && allHold(proof.conditions) && unwaived.length === 0) {
    return { state: "proved", since: proof.at };
  }
  const closes = PLANE_OF_STAGE[stage] !== null && !isLeftAlone(run, stage);
  if (closes && commit === null) return { state: "closing", since: openedAt };
  return { state: "proving", since: proof?.at ?? openedAt };
}

/** How far a statement is signed: by whose it is, and by the other one besides. */
function signedState(
  held: Held,
  place: string,
  maker: string,
  second: string,
  parties: readonly TrustedParty[],
): StageView["other"] {
  const envelope = envelopeAt(held, place);
  if (!isSignedBy(envelope, maker, parties)) return { state: "unknown", since: null };
  const last = isSignedBy(envelope, second, parties) ? second : maker;
  const since = signedSince(held, place, last, parties) ?? null;
  return { state: last === second ? "countersigned" : "signed", since };
}
