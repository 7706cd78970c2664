// A whole removal on a lab of its own, with the witness: how long each plane takes to be shown closed, and what
// everybody else notices. Its reference is the same run: what a stage took beside what was waited for until then,
// and the slowest message of others beside their usual one.
import type { Offboarded } from "../lab/offboard/offboard.ts";
import { Fed } from "../tests/support/lab-session.ts";
import type { Bench, BenchContext, BenchRow } from "./bench.ts";
import { seconds } from "./support/measure.ts";

const CLOSED_BAR_MS = 5_000;
const ROOMS_BAR_MS = 10_000;
const ALL_BAR_MS = 30_000;
const SIGNING_BAR_MS = 3_000;
const ROOMS_PLANE = 2;
/** The transport has no bar of its own: the homeserver restarts. It counts in all five. */
const TRANSPORT_PLANE = 1;

type Stage = Offboarded["stages"][number];

const tookMs = ({ openedAt, closedAt }: Stage) => closedAt - openedAt;

function barMs({ planeNumber }: Stage): number | undefined {
  if (planeNumber === null || planeNumber === TRANSPORT_PLANE) return undefined;
  return planeNumber === ROOMS_PLANE ? ROOMS_BAR_MS : CLOSED_BAR_MS;
}

function stageRow(stage: Stage): BenchRow {
  const [took, bar] = [tookMs(stage), barMs(stage)];
  const plane = stage.planeNumber === null ? "" : `, plane ${stage.planeNumber}`;
  return {
    measure: `${stage.organisation}: ${stage.stage}${plane}, opened to shown closed`,
    ours: seconds(took),
    reference: `${seconds(stage.closedAfterMs)} (since the decision)`,
    bar: bar === undefined ? "none" : `≤ ${seconds(bar)}`,
    outcome:
      stage.interruptionMs === null
        ? "nobody looked"
        : `others waited ${seconds(stage.interruptionMs)} at most`,
    met: bar === undefined || took <= bar,
    numbers: { ours: took / 1_000, reference: stage.closedAfterMs / 1_000, unit: "s" },
  };
}

function allPlanesRow(organisation: string, seen: readonly Stage[]): BenchRow {
  const planes = seen.filter((stage) => stage.organisation === organisation && stage.planeNumber !== null);
  const took = planes.reduce((sum, stage) => sum + tookMs(stage), 0);
  const sinceDecision = Math.max(...planes.map(({ closedAfterMs }) => closedAfterMs));
  const signing = sinceDecision - took;
  return {
    measure: `${organisation}: decision to all five planes closed, signed by both between the stages`,
    ours: seconds(sinceDecision),
    reference: `${seconds(took)} (the five stages alone)`,
    bar: `≤ ${seconds(ALL_BAR_MS)}, ≤ ${seconds(SIGNING_BAR_MS)} more than the reference`,
    outcome: `${seconds(signing)} of signing and passing on`,
    met: sinceDecision <= ALL_BAR_MS && signing <= SIGNING_BAR_MS,
    numbers: { ours: sinceDecision / 1_000, reference: took / 1_000, unit: "s" },
  };
}

function neighboursRow(one: Offboarded["neighbours"][number]): BenchRow {
  const { organisation, messages, lost, longestMs, medianMs } = one;
  return {
    measure: `${organisation} and ${one.with}: longest wait for a message`,
    ours: seconds(longestMs),
    reference: `${seconds(medianMs)} (median)`,
    bar: "none lost",
    outcome: `${lost} of ${messages} lost`,
    met: lost === 0 && messages > 0,
  };
}

async function run({ progress }: BenchContext): Promise<readonly BenchRow[]> {
  const fed = new Fed();
  try {
    progress("starting a lab");
    await fed.up("--with-witness");
    progress("removing org-b");
    const removed = JSON.parse(await fed.good("fed:offboard", "--json", "PARTNER=org-b")) as Offboarded;
    const { stages, neighbours, remover, partner } = removed;
    return [
      ...stages.map(stageRow),
      ...[remover, partner].map((organisation) => allPlanesRow(organisation, stages)),
      ...neighbours.map(neighboursRow),
    ];
  } finally {
    await fed.task("fed:down", "--purge");
    fed.remove();
  }
}

export const bench: Bench = {
  name: "Removal",
  minutes: 5,
  description:
    "`./task fed:offboard` on a lab of its own, with a fourth organisation: org-a and org-b close their planes at " +
    "the same time, and sign for each other between the stages. Each stage is measured from its opening, by the " +
    "commit that closes the plane, until probes have shown it closed; beside it the time since the decision, which " +
    "holds every signature and every file passed on before it. Meanwhile people of both organisations write to " +
    "org-d and are written to; the longest and the median time until the other one sees a message. The homeserver " +
    "restarts once in `transport`.",
  run,
};
