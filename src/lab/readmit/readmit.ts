// Takes a removed organisation back between the two operators: new identities first, then plane by plane in the
// order of the specification, on both sides; then one of its people asks again.
import { z } from "zod";
import { DrawbridgeError } from "../../domain/errors.ts";
import { PLANE_NAMES, PLANE_NUMBERS } from "../../federation/planes/names.ts";
import { SOURCES } from "../break-glass/scene.ts";
import { ghostFor } from "../endpoints.ts";
import { writeJson } from "../files.ts";
import type { Lab } from "../lab.ts";
import { entryOf, isRemoved } from "../offboard/entry.ts";
import { failed, Operator } from "../offboard/operator.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation, partnerOf, TRAITS } from "../organisations.ts";
import type { Progress } from "../progress.ts";
import { type AskResult, ask } from "../proof/ask.ts";
import { waitUntilReconciled } from "../reconciled.ts";
import { personOf, roomOf, type Seed, seed as seedRooms } from "../seed/seed.ts";
import { type FreshCardKey, rotateCardKey, writeFresh } from "./identities.ts";

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
  readonly decidedAt: number;
  readonly planes: readonly OpenedPlane[];
  readonly rooms: readonly { readonly organisation: CompleteOrganisation; readonly room: string }[];
  /** A question by the partner's person to our agent, and the other way round. */
  readonly answered: readonly AskResult[];
  readonly holds: boolean;
}

const Status = z.object({
  readmission: z.object({
    done: z.boolean(),
    stages: z.array(z.object({ plane: z.string(), provedAt: z.string().nullable() })),
  }),
});
const Step = z.object({
  plane: z.string().nullable(),
  proved: z.boolean(),
  done: z.boolean(),
  conditions: z.array(
    z.object({ condition: z.string(), verdict: z.string(), found: z.string(), mend: z.string() }),
  ),
});
/** One side may have to wait until the other has opened the same plane. */
const TRIES = 10;
const PAUSE_MS = 1_000;
const ANSWER_TIMEOUT_MS = 120_000;

/** @throws DrawbridgeError `usage` when the partner is not removed; `program_failed` */
export async function readmit(
  { lab, seed, org }: { readonly lab: Lab; readonly seed: Seed; readonly org: CompleteOrganisation },
  progress: Progress,
): Promise<Readmitted> {
  const operators = COMPLETE_ORGANISATIONS.map((name) => new Operator(lab, name));
  const decidedAt = SOURCES.clock.now();
  const gate = await openBoth(lab, operators, progress);
  const planes: OpenedPlane[] = [];
  for (const plane of PLANE_NAMES) {
    await Promise.all(
      operators.map(async (operator) => {
        if (await isSeenOpen(operator, plane)) return;
        const startedAt = SOURCES.clock.now();
        progress.doing(`plane ${PLANE_NUMBERS[plane]} ${plane} opens`);
        await openPlane(operator);
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
  const seeded = await seedRooms(await withoutGoneRooms(lab, seed), SOURCES, progress);
  progress.done("people and ghosts are back in shared rooms");
  const answered: AskResult[] = [];
  for (const publisher of [org, partnerOf(org)]) {
    const from = partnerOf(publisher);
    const room = roomOf(seeded, publisher);
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
    ...{ partner: partnerOf(org), by: org, gate, decidedAt, planes, answered },
    rooms: COMPLETE_ORGANISATIONS.map((organisation) => ({
      organisation,
      room: roomOf(seeded, organisation)?.roomId ?? "",
    })),
    holds: answered.every(({ audit }) => audit.outcome === "completed"),
  };
}

/** Opens the re-admission at both, or finds it open. @returns the gate */
async function openBoth(lab: Lab, operators: readonly Operator[], progress: Progress): Promise<string> {
  const entries = await Promise.all(operators.map(({ organisation }) => entryOf(lab, organisation)));
  // Each removal retires a client; the first partnership had one without a number.
  const pending = await Promise.all(operators.map(isOpen));
  const generation = Math.max(
    ...entries.map(({ retired }, index) => retired.clients.length + (pending[index] === true ? 1 : 2)),
  );
  const gate = `CONTRACT-77-${generation}`;
  if (pending.every((one) => one)) {
    progress.note("A re-admission was cut off; going on with it.");
    return gate;
  }
  if (!entries.every(isRemoved) && !pending.some((one) => one)) {
    throw new DrawbridgeError("usage", "neither organisation is removed from the other", {
      mend: "Remove one first: ./task fed:offboard.",
    });
  }
  progress.doing("new keys and clients");
  const keys = Object.fromEntries(
    await Promise.all(
      COMPLETE_ORGANISATIONS.map(async (name) => [name, await rotateCardKey(lab, name, generation)] as const),
    ),
  ) as Record<CompleteOrganisation, FreshCardKey>;
  progress.done(`each agent signs its card with a new key, each bridge has a new client (${generation})`);
  for (const operator of operators) {
    const fresh = await writeFresh(lab, operator.organisation, generation, keys);
    const words = ["readmission", "open", operator.counterparty, "--gate", gate, "--fresh", fresh];
    await operator.must(...words);
    progress.done(
      `${operator.organisation} retires what it pinned of ${operator.counterparty}, and pins what is new`,
    );
  }
  return gate;
}

/** Whether this side's re-admission was opened and has not come to its end. */
async function isOpen(operator: Operator): Promise<boolean> {
  try {
    const { said } = await operator.type("readmission", "status", operator.counterparty);
    return !Status.parse(said).readmission.done;
  } catch {
    return false;
  }
}

/** Of one that was cut off: what was opened before is not opened again. */
async function isSeenOpen(operator: Operator, plane: string): Promise<boolean> {
  const { said } = await operator.type("readmission", "status", operator.counterparty);
  const { stages } = Status.parse(said).readmission;
  return stages.some((stage) => stage.plane === plane && stage.provedAt !== null);
}

/** The next plane of one side, until it is seen to be open. */
async function openPlane(operator: Operator): Promise<void> {
  const words = ["readmission", "next", operator.counterparty, "--as", operator.probeFile];
  for (let tries = 1; ; tries++) {
    const answer = await operator.type(...words);
    const { proved, conditions } = Step.parse(answer.said);
    if (proved) return;
    if (tries >= TRIES) {
      const wrong = conditions.filter(({ mend }) => mend !== "");
      const lines = wrong.map(({ condition, found, mend }) => `${condition}: ${found} (${mend})`).join("\n");
      throw failed(operator.organisation, words, { code: answer.code, stderr: `${answer.stderr}\n${lines}` });
    }
    await SOURCES.clock.sleep(PAUSE_MS);
  }
}

/** Rooms that were replaced are gone from the lab's list: their addresses lead to what is in their place. */
async function withoutGoneRooms(lab: Lab, seed: Seed): Promise<Lab> {
  const rooms = [];
  for (const room of seed.rooms) {
    const creator = personOf(lab, seed, room.createdBy, SOURCES);
    const found = await creator.request("GET", `/directory/room/${encodeURIComponent(room.alias)}`);
    if (found.body["room_id"] === room.roomId) rooms.push(room);
  }
  writeJson(lab.paths.seed, { ...seed, rooms } satisfies Seed);
  return lab;
}
