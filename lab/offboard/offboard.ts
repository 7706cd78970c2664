// Removes one organisation from the other between their two operators, while the removed one keeps trying and
// everybody else goes on talking; and says what was seen of it.
import { readFileSync } from "node:fs";
import { z } from "zod";
import { RecordFile } from "../../src/records/format/record-file.ts";
import { SOURCES } from "../break-glass/contain.ts";
import type { Lab } from "../lab.ts";
import type { Observed } from "../observe/attempt-watch.ts";
import { type Neighbours, NeighbourTraffic } from "../observe/bystanders.ts";
import { Operator } from "../observe/operator.ts";
import { isShut, tryAll } from "../observe/partner-attempts.ts";
import { comparePrograms, type ProgramsAfter, programsOf } from "../observe/restarts.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation } from "../organisations.ts";
import { formatDuration, type Progress } from "../progress.ts";
import type { Seed } from "../seed/seed.ts";
import { type KeptOrReplaced, type Kind, openBoth } from "./open.ts";
import { OutOfReach, type Signer, signersOf, type Waived, waivedIn } from "./record.ts";
import { type Verified, verify } from "./verify.ts";
import { type ClosedStage, type WalkHooks, walk } from "./workflow.ts";

export interface StageSeen extends ClosedStage {
  /** Since the decision. */
  readonly closedAfterMs: number;
  /** The longest that a message of the organisation's neighbours was on its way meanwhile; null where nobody looked. */
  readonly interruptionMs: number | null;
}

interface Contained {
  readonly organisation: CompleteOrganisation;
  /** Since the decision. */
  readonly afterMs: number;
}

export interface Offboarded {
  readonly run: string;
  readonly kind: Kind;
  readonly remover: CompleteOrganisation;
  readonly partner: CompleteOrganisation;
  /** Milliseconds since the Unix epoch. */
  readonly decidedAt: number;
  readonly completedAt: number;
  readonly record: {
    readonly file: string;
    /** Both public keys, for `drawbridge verify`. */
    readonly trustFile: string;
    readonly signers: readonly Signer[];
  };
  /** Of an emergency: its first step at each. */
  readonly contained: readonly Contained[];
  readonly stages: readonly StageSeen[];
  /** What the partner tried all the while. */
  readonly attempts: readonly Observed[];
  readonly neighbours: readonly Neighbours[];
  readonly programs: Readonly<Record<CompleteOrganisation, ProgramsAfter>>;
  readonly verified: Verified;
  /** What neither operator could reach, by the record. */
  readonly waived: readonly Waived[];
  /** Whether the record verifies twice over, nothing gets through, nobody lost anything, nothing else restarted. */
  readonly holds: boolean;
}

const SETTLE_MS = 60_000;
const RESTARTED = ["homeserver"];

const Envelopes = z.object({ stages: z.array(z.object({ payload: z.string() })) });
const StageTimes = z.object({
  predicate: z.object({
    ...OutOfReach.shape,
    organisation: z.string(),
    stage: z.string(),
    openedAt: z.string(),
    closedAt: z.string(),
  }),
});

/**
 * @param org who removes, and @param kind how
 * @param rooms what becomes of shared rooms; undefined for what the registries say
 * @param opening what is to happen before an organisation opens a stage
 * @throws DrawbridgeError `usage` when the partner is removed already; `program_failed`
 */
export async function offboard(
  scene: {
    readonly lab: Lab;
    readonly seed: Seed;
    readonly org: CompleteOrganisation;
    readonly kind: Kind;
    readonly rooms?: KeptOrReplaced | undefined;
    readonly opening?: WalkHooks["opening"];
  },
  progress: Progress,
): Promise<Offboarded> {
  const { lab, seed, org, kind } = scene;
  const { clock } = SOURCES;
  const remover = new Operator(lab, org);
  const partner = new Operator(lab, remover.counterparty);
  const before = await programsIn(lab);
  const { run, cutOffSince } = await openBoth(scene, remover, partner, progress);
  const traffic = await NeighbourTraffic.open(lab, seed, SOURCES);
  const { watch, close } = tryAll(seed, remover);
  const seen: ClosedStage[] = [];
  const contained: Contained[] = [];
  traffic.start();
  watch.start();
  const triedSince = watch.decide();
  const decidedAt = cutOffSince ?? triedSince;
  let recordFile: string;
  let completedAt: number;
  let attempts: readonly Observed[];
  let neighbours: readonly Neighbours[];
  try {
    recordFile = await walk([remover, partner], run, {
      clock,
      opening: scene.opening,
      note: (text) => progress.note(text),
      doing: (text) => progress.doing(text),
      contained(organisation, at) {
        contained.push({ organisation, afterMs: at - decidedAt });
        progress.done(
          `${organisation}: planes 5, 4, 2 and 3 closed at once ${formatDuration(at - decidedAt)} after the decision`,
        );
      },
      closed(stage) {
        seen.push(stage);
        progress.done(lineOf(stage, decidedAt), stage.closedAt - stage.openedAt);
      },
    });
    completedAt = clock.now();
    await watch.until(isShut, SETTLE_MS);
  } finally {
    attempts = await watch.stop();
    neighbours = await traffic.stop();
    await close();
  }
  progress.doing("two verifiers read the record");
  const verified = await verify(lab, recordFile, [remover, partner]);
  const recorded = stagesIn(recordFile, lab);
  const stages = recorded.map(({ outOfReach: _, ...stage }): StageSeen => {
    const live = seen.find((one) => one.organisation === stage.organisation && one.stage === stage.stage);
    return {
      ...stage,
      planeNumber: live?.planeNumber ?? null,
      closedAfterMs: stage.closedAt - decidedAt,
      interruptionMs:
        live === undefined ? null : traffic.longestWithin(stage.organisation, stage.openedAt, stage.closedAt),
    };
  });
  const after = await programsIn(lab);
  const programs = Object.fromEntries(
    COMPLETE_ORGANISATIONS.map((name) => [name, comparePrograms(before[name], after[name])]),
  ) as Offboarded["programs"];
  return {
    ...{ run, kind, remover: org, partner: partner.organisation, decidedAt, completedAt },
    record: {
      file: recordFile,
      trustFile: lab.paths.organisation(org).trustFile,
      signers: signersOf(lab, recordFile),
    },
    ...{ contained, stages, attempts, neighbours, programs, verified, waived: waivedIn(recorded) },
    holds:
      verified.drawbridge &&
      verified.foreign &&
      attempts.every(isShut) &&
      neighbours.every(({ lost, messages }) => lost === 0 && messages > 0) &&
      Object.values(programs).every(({ restarted }) => restarted.every((name) => RESTARTED.includes(name))),
  };
}

function lineOf({ organisation, stage, planeNumber, closedAt }: ClosedStage, decidedAt: number): string {
  const plane = planeNumber === null ? "" : ` (plane ${planeNumber})`;
  return `${organisation}: ${stage}${plane} closed ${formatDuration(closedAt - decidedAt)} after the decision`;
}

async function programsIn(lab: Lab) {
  const found = await Promise.all(
    COMPLETE_ORGANISATIONS.map(async (name) => [name, await programsOf(lab, name)] as const),
  );
  return Object.fromEntries(found) as Record<CompleteOrganisation, Awaited<ReturnType<typeof programsOf>>>;
}

/** The stages as the record has them, in its order. */
function stagesIn(
  file: string,
  lab: Lab,
): readonly (Omit<ClosedStage, "planeNumber"> & z.output<typeof OutOfReach>)[] {
  const { stages } = Envelopes.parse(RecordFile.parse(JSON.parse(readFileSync(file, "utf8"))));
  return stages.map(({ payload }) => {
    const { predicate } = StageTimes.parse(JSON.parse(Buffer.from(payload, "base64").toString("utf8")));
    const organisation = COMPLETE_ORGANISATIONS.find(
      (name) => lab.serverNames[name] === predicate.organisation,
    );
    if (organisation === undefined) throw new TypeError("the record is about somebody else");
    return {
      ...{ organisation, stage: predicate.stage, outOfReach: predicate.outOfReach },
      openedAt: Date.parse(predicate.openedAt),
      closedAt: Date.parse(predicate.closedAt),
    };
  });
}
