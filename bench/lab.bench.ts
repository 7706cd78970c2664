// Questions through a whole lab: from the mention in a client of one organisation, by Synapse, bridge, gateway and the other
// organisation's agent, until the other organisation's client sees the answer. Its reference is a message on the same way
// between the same clients, which nobody answers.
import { ghostFor } from "../lab/endpoints.ts";
import type { MatrixUser, RoomEvent } from "../lab/matrix-user.ts";
import { TRAITS } from "../lab/organisations.ts";
import { personOf } from "../lab/seed/seed-file.ts";
import { systemClock } from "../src/domain/clock.ts";
import type { RoomId } from "../src/domain/identifiers.ts";
import { eventually, LabSession } from "../tests/support/lab-session.ts";
import type { Bench, BenchContext, BenchRow } from "./bench.ts";
import { ms, summarize } from "./support/measure.ts";
import { size } from "./support/size.ts";

const ROOMS = size(16, 2);
/** In each room, one after the other. */
const QUESTIONS = size(10, 2);
const SYNC_WAIT_MS = 10_000;
const PATIENCE_MS = 120_000;

interface Pair {
  readonly asker: MatrixUser;
  readonly watcher: MatrixUser;
  /** How far the watcher has read each room. */
  readonly positions: Map<RoomId, string>;
}

/** Sends a message and waits until the watcher's client sees what `isIt` looks for. */
async function timeUntil(
  { asker, watcher, positions }: Pair,
  room: RoomId,
  content: Readonly<Record<string, unknown>>,
  isIt: (event: RoomEvent, sent: string) => boolean,
): Promise<number> {
  if (!positions.has(room)) positions.set(room, (await watcher.sync(room, undefined, 0)).next);
  const begun = performance.now();
  const sent = await asker.send(room, content);
  while (performance.now() - begun < PATIENCE_MS) {
    const found = await watcher.sync(room, positions.get(room), SYNC_WAIT_MS);
    positions.set(room, found.next);
    if (found.events.some((event) => isIt(event, sent))) return performance.now() - begun;
  }
  throw new Error(`nothing was seen of ${sent} within ${PATIENCE_MS / 1_000} s`);
}

/** In all rooms at once. */
async function carried(rooms: readonly RoomId[], one: (room: RoomId) => Promise<number>) {
  const begun = performance.now();
  const latencies: number[] = [];
  await Promise.all(
    rooms.map(async (room) => {
      for (let n = 0; n < QUESTIONS; n++) latencies.push(await one(room));
    }),
  );
  return {
    perSecond: (latencies.length * 1_000) / (performance.now() - begun),
    ...summarize(latencies),
  };
}

const answers = (event: RoomEvent): string | undefined => {
  const related = event.content["m.relates_to"] as { "m.in_reply_to"?: { event_id?: string } } | undefined;
  return related?.["m.in_reply_to"]?.event_id;
};

async function run({ progress }: BenchContext): Promise<readonly BenchRow[]> {
  progress("starting a lab");
  const session = await LabSession.start();
  try {
    const { lab, seed } = session;
    const [asker, watcher] = [personOf(lab, seed, "org-a"), personOf(lab, seed, "org-b")];
    const pair = { asker, watcher, positions: new Map<RoomId, string>() };
    const ghost = ghostFor(lab, "org-a", "org-b");
    const invite = [ghost, pair.watcher.userId];
    const rooms = await Promise.all(
      Array.from({ length: ROOMS }, async () => {
        const room = await pair.asker.createRoom({ preset: "private_chat", invite });
        await eventually("the other organisation joins", async () => {
          const { status } = await pair.watcher.join(room, [lab.serverNames["org-a"]]);
          return status === 200;
        });
        await eventually("the ghost joins", async () => (await pair.asker.members(room)).includes(ghost));
        return room;
      }),
    );
    const said = { msgtype: "m.text", body: "A message that nobody answers." };
    const asked = {
      msgtype: "m.text",
      body: `${ghost}: ${TRAITS["org-b"].sampleQuestion}`,
      "m.mentions": { user_ids: [ghost] },
    };
    const message = (room: RoomId) => timeUntil(pair, room, said, (event, sent) => event.event_id === sent);
    const question = (room: RoomId) =>
      timeUntil(
        pair,
        room,
        asked,
        (event, sent) =>
          event.sender === ghost && event.content["msgtype"] === "m.text" && answers(event) === sent,
      );
    // What is fetched once, such as keys, a card and a token.
    await Promise.all(rooms.map(question));
    await systemClock.sleep(1_000);
    const reference = await carried(rooms, message);
    progress(`messages: ${reference.perSecond.toFixed(1)} a second`);
    const ours = await carried(rooms, question);
    progress(`questions: ${ours.perSecond.toFixed(1)} a second`);
    return [
      {
        measure: `questions per second, ${ROOMS} rooms at once`,
        ours: ours.perSecond.toFixed(1),
        reference: `${reference.perSecond.toFixed(1)} messages per second`,
        bar: "none",
        outcome: `${(ours.perSecond / reference.perSecond).toFixed(2)} of it; ${ROOMS * QUESTIONS} of ${ROOMS * QUESTIONS} answered`,
        met: true,
        numbers: { ours: ours.perSecond, reference: reference.perSecond, unit: "per second" },
      },
      {
        measure: "mention until the other organisation sees the answer, median",
        ours: ms(ours.p50Ms),
        reference: `${ms(reference.p50Ms)} (a message)`,
        bar: "none",
        outcome: `p99 ${ms(ours.p99Ms)} beside ${ms(reference.p99Ms)}`,
        met: true,
        numbers: { ours: ours.p50Ms, reference: reference.p50Ms, unit: "ms" },
      },
    ];
  } finally {
    await session.end();
  }
}

export const bench: Bench = {
  name: "Whole lab",
  minutes: 4,
  description:
    "A lab of three organisations on this machine, each with its own Synapse, bridge, gateway, issuer and agent. A person of org-a asks the ghost " +
    "of org-b's agent by a mention; measured until the client of a person of org-b, at the other homeserver, sees the answer. " +
    `${ROOMS} rooms at once, in each ${QUESTIONS} questions one after the other. Beside it as many messages that nobody answers, in the same ` +
    "rooms between the same clients. The lab's gateways admit 600 calls a minute.",
  run,
};
