// Takes a removed organisation back between the two operators: new identities first, then plane by plane in the
// order of the specification, on both sides; then one of its people asks again.
import { z } from "zod";
import { PLANE_NUMBERS } from "../../src/federation/plane-order.ts";
import { READMISSION_ORDER } from "../../src/federation/readmission/readmission.ts";
import type { RoomsChoice } from "../../src/federation/readmission/readmission-record.ts";
import { type AskResult, ask } from "../ask/ask.ts";
import { SOURCES } from "../break-glass/contain.ts";
import { ghostFor } from "../endpoints.ts";
import type { Lab } from "../lab.ts";
import { failed, Operator } from "../observe/operator.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation, partnerOf, TRAITS } from "../organisations.ts";
import type { Progress } from "../progress.ts";
import { ROOM_FORMS, roomOf, type Seed } from "../seed/seed.ts";
import { waitUntilReconciled } from "../status/federation.ts";
import { type SaidMeanwhile, saidMeanwhile } from "./messages-while-removed.ts";
import { openBoth, ReadmissionStatus } from "./open.ts";
import { shareRooms } from "./rooms.ts";

export interface OpenedPlane {
  readonly organisation: CompleteOrganisation;
  readonly plane: string;
  /** Milliseconds since the Unix epoch. */
  readonly seenAt: number;
  readonly tookMs: number;
}

export interface Readmitted {
  readonly partner: CompleteOrganisation;
  readonly by: CompleteOrganisation;
  readonly gate: string;
  /** When it was complete, of one that was before this task began; null for one that was brought about now. */
  readonly completeSince: string | null;
  readonly decidedAt: number;
  readonly planes: readonly OpenedPlane[];
  readonly rooms: readonly {
    readonly organisation: CompleteOrganisation;
    readonly room: string;
    readonly encrypted: boolean;
  }[];
  readonly choice: RoomsChoice | null;
  /** Of the shared rooms that were opened again, and of a third party's that both have stayed in. */
  readonly reopened: readonly SaidMeanwhile[];
  /** A question by the partner's person to our agent, the other way round, and the first in an encrypted room. */
  readonly answered: readonly AskResult[];
  readonly holds: boolean;
}

const Step = ReadmissionStatus.extend({
  plane: z.string().nullable(),
  proved: z.boolean(),
  done: z.boolean(),
  conditions: z.array(
    z.object({ condition: z.string(), verdict: z.string(), found: z.string(), hint: z.string() }),
  ),
});
type State = z.output<typeof ReadmissionStatus>["readmission"];
/** One side may have to wait until the other has opened the same plane. */
const TRIES = 10;
const PAUSE_MS = 1_000;
/** The choice of rooms and what becomes of each, as the command says it before it touches one. */
const ROOMS_TOLD = /^(?:Rooms[ :]| {2}!|!)/;
const ANSWER_TIMEOUT_MS = 120_000;

/**
 * @param choice what becomes of rooms that were kept; undefined for what the commands say themselves
 * @throws DrawbridgeError `usage` when the partner is not removed; `program_failed`
 */
export async function readmit(
  {
    lab,
    seed,
    org,
    choice,
  }: {
    readonly lab: Lab;
    readonly seed: Seed;
    readonly org: CompleteOrganisation;
    readonly choice: RoomsChoice | undefined;
  },
  progress: Progress,
): Promise<Readmitted> {
  const operators = COMPLETE_ORGANISATIONS.map((name) => new Operator(lab, name));
  const decidedAt = SOURCES.clock.now();
  const { gate, completeSince } = await openBoth(lab, operators, progress);
  const planes: OpenedPlane[] = [];
  const states = new Map(
    await Promise.all(operators.map(async (operator) => [operator, await stateOf(operator)] as const)),
  );
  for (const plane of READMISSION_ORDER) {
    await Promise.all(
      operators.map(async (operator) => {
        // Of one that was cut off: what was opened before is not opened again.
        if (states.get(operator)?.stages.some((one) => one.plane === plane && one.provedAt !== null)) return;
        const startedAt = SOURCES.clock.now();
        progress.doing(`plane ${PLANE_NUMBERS[plane]} ${plane} opens`);
        const words = plane === "rooms" && choice !== undefined ? ["--rooms", choice] : [];
        const { readmission, told } = await openPlane(operator, words);
        states.set(operator, readmission);
        for (const line of told) progress.note(`${operator.organisation}: ${line.trim()}`);
        const seenAt = SOURCES.clock.now();
        planes.push({ organisation: operator.organisation, plane, seenAt, tookMs: seenAt - startedAt });
        progress.done(
          `${operator.organisation}: plane ${PLANE_NUMBERS[plane]} ${plane} is open`,
          seenAt - startedAt,
        );
      }),
    );
  }
  await waitUntilReconciled(lab, SOURCES.clock, progress);
  progress.doing("people come back into shared rooms");
  const seeded = await shareRooms(lab, seed, progress);
  progress.done("people and ghosts are back in shared rooms");
  progress.doing("what was said meanwhile is counted");
  const keptAt = operators.flatMap((operator) => {
    const room = roomOf(seeded, operator.organisation)?.roomId;
    const isKept = states.get(operator)?.touched?.some((one) => one.room === room && one.state === "kept");
    return isKept === true ? [operator.organisation] : [];
  });
  const reopened = await saidMeanwhile(lab, seeded, keptAt, (text) => progress.note(text));
  const answered: AskResult[] = [];
  for (const [publisher, form] of [
    [org, "plain"],
    [partnerOf(org), "plain"],
    [org, "encrypted"],
  ] as const) {
    const from = partnerOf(publisher);
    const room = roomOf(seeded, publisher, form);
    if (room === undefined) throw new TypeError(`${publisher} has no room`);
    progress.doing(`a person of ${from} asks`);
    answered.push(
      await ask(
        {
          ...{ lab, seed: seeded, from, bridgeOf: from, publisher, room },
          ghost: ghostFor(lab, from, publisher),
          question: TRAITS[publisher].sampleQuestion,
          timeoutMs: ANSWER_TIMEOUT_MS,
        },
        SOURCES,
      ),
    );
  }
  return {
    ...{
      partner: partnerOf(org),
      by: org,
      gate,
      completeSince,
      decidedAt,
      planes,
      choice: choice ?? null,
      reopened,
      answered,
    },
    rooms: ROOM_FORMS.flatMap((form) =>
      COMPLETE_ORGANISATIONS.flatMap((organisation) => {
        const room = roomOf(seeded, organisation, form);
        return room === undefined ? [] : [{ organisation, room: room.roomId, encrypted: room.encrypted }];
      }),
    ),
    holds: answered.every(
      ({ audit, room, views }) =>
        audit.outcome === "completed" &&
        COMPLETE_ORGANISATIONS.every((name) => views[name].encrypted === room.encrypted),
    ),
  };
}

async function stateOf(operator: Operator): Promise<State> {
  const { said } = await operator.type("readmission", "status", operator.counterparty);
  return ReadmissionStatus.parse(said).readmission;
}

/** The next plane of one side, until it is seen to be open; with what was told of its rooms. */
async function openPlane(
  operator: Operator,
  choice: readonly string[],
): Promise<{ readonly readmission: State; readonly told: readonly string[] }> {
  const words = [
    "readmission",
    "next",
    operator.counterparty,
    "--probe-config",
    operator.probeFile,
    ...choice,
  ];
  const told: string[] = [];
  for (let tries = 1; ; tries++) {
    const answer = await operator.type(...words);
    const { readmission, proved, conditions } = Step.parse(answer.said);
    told.push(...answer.stderr.split("\n").filter((line) => ROOMS_TOLD.test(line) && !told.includes(line)));
    if (proved) return { readmission, told };
    if (tries >= TRIES) {
      const wrong = conditions.filter(({ hint }) => hint !== "");
      const lines = wrong.map(({ condition, found, hint }) => `${condition}: ${found} (${hint})`).join("\n");
      throw failed(operator.organisation, words, { code: answer.code, stderr: `${answer.stderr}\n${lines}` });
    }
    await SOURCES.clock.sleep(PAUSE_MS);
  }
}
