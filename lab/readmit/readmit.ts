// Readmits a removed organisation between the two operators: new identities first, then plane by plane in the order of
// the specification, on both sides; then people of both ask again.
import * as z from "zod";
import { PLANE_NUMBERS } from "../../src/federation/plane-order.ts";
import type { RoomsChoice } from "../../src/federation/registry/committed-records.ts";
import { READMISSION } from "../../src/federation/workflow/procedures.ts";
import { type AskResult, ask } from "../ask/ask.ts";
import { type Lab, SOURCES } from "../lab.ts";
import { commandFailed, Operator } from "../observe/operator.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation, partnerOf } from "../organisations.ts";
import type { Progress } from "../progress.ts";
import { ROOM_FORMS, requireRoom, roomOf, type Seed } from "../seed/seed-file.ts";
import { waitUntilReconciled } from "../status/federation.ts";
import { messagesWhileRemoved, type RoomMessages } from "./messages-while-removed.ts";
import { openBoth, type Readmission, ReadmissionStatus } from "./open.ts";
import { shareRooms } from "./rooms.ts";

export interface OpenedPlane {
  readonly organisation: CompleteOrganisation;
  readonly plane: string;
  /** Milliseconds since the Unix epoch. */
  readonly openAt: number;
  readonly tookMs: number;
}

export interface Readmitted {
  readonly partner: CompleteOrganisation;
  readonly by: CompleteOrganisation;
  readonly gate: string;
  /** When a re-admission was complete that had ended before this task began; null for one that ended now. */
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
  readonly reopened: readonly RoomMessages[];
  /** A question by the partner's person to our agent, the other way round, and the first in an encrypted room. */
  readonly answered: readonly AskResult[];
  readonly holds: boolean;
}

const Step = z.object({
  status: ReadmissionStatus,
  plane: z.string().nullable(),
  proved: z.boolean(),
  done: z.boolean(),
  conditions: z.array(
    z.object({ condition: z.string(), verdict: z.string(), found: z.string(), hint: z.string() }),
  ),
});
/** One side may have to wait until the other has opened the same plane. */
const TRIES = 10;
const PAUSE_MS = 1_000;
/** Lines in which the command names the choice of rooms and what becomes of each. */
const ROOM_LINES = /^(?:Rooms[ :]| {2}!|!)/;
const ANSWER_TIMEOUT_MS = 120_000;

/**
 * @param choice what becomes of rooms that were kept; undefined for the default of the command
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
  for (const { plane } of READMISSION.steps) {
    await Promise.all(
      operators.map(async (operator) => {
        // An interrupted re-admission has opened some planes already.
        if (states.get(operator)?.steps.some((one) => one.plane === plane && one.provedAt !== null)) return;
        const { organisation } = operator;
        const title = `plane ${PLANE_NUMBERS[plane]} ${plane}`;
        const startedAt = SOURCES.clock.now();
        progress.doing(`${title} opens`);
        const options = plane === "rooms" && choice !== undefined ? ["--rooms", choice] : [];
        const { readmission, roomLines } = await openPlane(operator, options);
        states.set(operator, readmission);
        for (const line of roomLines) progress.note(`${organisation}: ${line.trim()}`);
        const openAt = SOURCES.clock.now();
        planes.push({ organisation, plane, openAt, tookMs: openAt - startedAt });
        progress.done(`${organisation}: ${title} is open`, openAt - startedAt);
      }),
    );
  }
  await waitUntilReconciled(lab, progress);
  progress.doing("people come back into shared rooms");
  const seeded = await shareRooms(lab, seed, progress);
  progress.done("people and ghosts are back in shared rooms");
  progress.doing("counting the messages that were sent meanwhile");
  const keptAt = operators.flatMap((operator) => {
    const room = roomOf(seeded, operator.organisation)?.roomId;
    const isKept = states.get(operator)?.touched?.some((one) => one.room === room && one.state === "kept");
    return isKept === true ? [operator.organisation] : [];
  });
  const reopened = await messagesWhileRemoved(lab, seeded, keptAt, (text) => progress.note(text));
  const answered: AskResult[] = [];
  for (const [publisher, form] of [
    [org, "plain"],
    [partnerOf(org), "plain"],
    [org, "encrypted"],
  ] as const) {
    const from = partnerOf(publisher);
    progress.doing(`a person of ${from} asks`);
    const room = requireRoom(seeded, publisher, form);
    answered.push(await ask({ lab, seed: seeded, from, publisher, room, timeoutMs: ANSWER_TIMEOUT_MS }));
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

async function stateOf(operator: Operator): Promise<Readmission> {
  const { output } = await operator.run(["readmission", "status", operator.counterparty]);
  return ReadmissionStatus.parse(output);
}

/** Opens the next plane of one side, until it is proved open. */
async function openPlane(
  operator: Operator,
  options: readonly string[],
): Promise<{ readonly readmission: Readmission; readonly roomLines: readonly string[] }> {
  const { organisation, counterparty, probeFile } = operator;
  const words = ["readmission", "next", counterparty, "--probe-config", probeFile, ...options];
  const roomLines = new Set<string>();
  for (let tries = 1; ; tries++) {
    const { code, output, stderr } = await operator.run(words);
    const { status: readmission, proved, conditions } = Step.parse(output);
    for (const line of stderr.split("\n")) if (ROOM_LINES.test(line)) roomLines.add(line);
    if (proved) return { readmission, roomLines: [...roomLines] };
    if (tries >= TRIES) {
      const wrong = conditions.filter(({ hint }) => hint !== "");
      const lines = wrong.map(({ condition, found, hint }) => `${condition}: ${found} (${hint})`).join("\n");
      throw commandFailed(organisation, words, { code, stderr: `${stderr}\n${lines}` });
    }
    await SOURCES.clock.sleep(PAUSE_MS);
  }
}
