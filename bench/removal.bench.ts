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

/** From the decision: the start of the commands, one's own stages, the wait for the other's, and the signing between. */
function allPlanesRow(organisation: string, stages: readonly Stage[]): BenchRow {
  const planes = stagesOf(organisation, stages).filter(({ planeNumber }) => planeNumber !== null);
  const took = sumOf(planes, tookMs);
  const sinceDecision = Math.max(...planes.map(({ closedAfterMs }) => closedAfterMs));
  const [first] = planes;
  const start = first === undefined ? 0 : first.closedAfterMs - tookMs(first);
  const waited = sumOf(planes.slice(0, -1), (stage) => bothClosedAt(stage, stages) - stage.closedAt);
  return {
    measure: `${organisation}: decision to all five planes closed, signed by both between the stages`,
    ours: seconds(sinceDecision),
    reference: `${seconds(took)} (its five stages alone)`,
    bar: `≤ ${seconds(ALL_BAR_MS)}`,
    outcome: `${seconds(start)} until the first was opened, ${seconds(waited)} of waiting for the other's stages`,
    met: sinceDecision <= ALL_BAR_MS,
    numbers: { ours: sinceDecision / 1_000, reference: took / 1_000, unit: "s" },
  };
}

/** From when both have shown a stage closed until the next is opened: until then, one waits for the other's stage. */
function signingRow(organisation: string, stages: readonly Stage[]): BenchRow {
  const own = stagesOf(organisation, stages);
  const each = own.slice(1).map((next, index) => next.openedAt - bothClosedAt(own[index] ?? next, stages));
  const took = sumOf(each, (ms) => ms);
  return {
    measure: `${organisation}: signing and passing on between the six stages`,
    ours: seconds(took),
    reference: `${seconds(sumOf(own, tookMs))} (its six stages alone)`,
    bar: `≤ ${seconds(SIGNING_BAR_MS)}`,
    outcome: `${seconds(Math.max(...each))} between two stages at most`,
    met: took <= SIGNING_BAR_MS,
  };
}

function stagesOf(organisation: string, stages: readonly Stage[]): readonly Stage[] {
  const own = stages.filter((stage) => stage.organisation === organisation);
  return own.sort((one, other) => one.openedAt - other.openedAt);
}

/** When the slower of the two has shown a stage closed. */
function bothClosedAt({ stage }: Stage, stages: readonly Stage[]): number {
  return Math.max(...stages.filter((one) => one.stage === stage).map(({ closedAt }) => closedAt));
}

function sumOf<T>(values: readonly T[], of: (value: T) => number): number {
  return values.reduce((sum, value) => sum + of(value), 0);
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
      ...[remover, partner].map((organisation) => signingRow(organisation, stages)),
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
    "holds every signature and every file passed on before it. A stage is opened once both have signed the one before " +
    "it: what passes from when the slower of them has shown that one closed is signing and passing on, and what " +
    "passes before is waiting for the other's stage. Meanwhile people of both organisations write to " +
    "org-d and are written to; the longest and the median time until the other one sees a message. The homeserver " +
    "restarts once in `transport`.",
  run,
};
