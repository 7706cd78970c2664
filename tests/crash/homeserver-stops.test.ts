// The homeserver ends, by SIGKILL and SIGTERM in turn, while people ask and transactions are in flight and
// queued: every question that a client saw accepted is answered once.
import assert from "node:assert/strict";
import { createServer, request } from "node:http";
import { describe, it, type TestContext } from "node:test";
import { freePort } from "../../lab/ports.ts";
import { systemClock } from "../../src/domain/clock.ts";
import type { EventId, RoomId } from "../../src/domain/identifiers.ts";
import {
  type EncryptedBridge,
  encryptedBridge,
  eventually,
  GHOST,
  questionTo,
} from "../support/encrypted-bridge.ts";
import { EncryptingClient, encryptedRoom, repliesTo } from "../support/encrypting-client.ts";
import { stopsOf } from "../support/kills.ts";
import { type RoomMessage, startSynapse, type TestSynapse, type TestUser } from "../support/synapse.ts";

/** Listens on `port` and passes everything on to `target`, `delayMs` later. */
export async function slowTransactions(
  t: Pick<TestContext, "after">,
  port: number,
  target: number,
  delayMs: number,
): Promise<void> {
  const server = createServer((incoming, outgoing) => {
    const chunks: Buffer[] = [];
    incoming.on("data", (chunk: Buffer) => chunks.push(chunk));
    incoming.on("end", async () => {
      await systemClock.sleep(delayMs);
      const { method, url: path, headers } = incoming;
      const passed = request({ host: "127.0.0.1", port: target, method, path, headers }, (answer) => {
        outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
        answer.pipe(outgoing);
      });
      passed.on("error", () => outgoing.destroy());
      passed.end(Buffer.concat(chunks));
    });
  });
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
}

const ROOMS = 4;
/** In each room, at each stop. */
const QUESTIONS = 3;
const TRANSACTION_DELAY_MS = 250;
/** From the last question that is accepted before the stop, at most. */
const STOP_WITHIN_MS = 150;
const AGAIN_MS = 50;
const PATIENCE_MS = 120_000;

interface Asker {
  readonly room: RoomId;
  /**
   * Readies a question while the homeserver is there.
   * @returns asks it as a client does: until the homeserver has accepted it, under one transaction ID
   */
  question(text: string): Promise<() => Promise<EventId>>;
  /** What was said in the room, in its order. */
  heard(): Promise<readonly RoomMessage[]>;
}

let sent = 0;

/** @param over the test is: nobody asks any more */
async function accepted(
  user: TestUser,
  room: RoomId,
  type: string,
  content: Readonly<Record<string, unknown>>,
  over: AbortSignal,
): Promise<EventId> {
  const path = `/rooms/${encodeURIComponent(room)}/send/${type}/stop${sent++}`;
  for (;;) {
    try {
      return (await user.call("PUT", path, content))["event_id"] as EventId;
    } catch {
      await systemClock.sleep(AGAIN_MS, over);
    }
  }
}

interface Scene {
  readonly synapse: TestSynapse;
  readonly bridge: EncryptedBridge;
  readonly over: AbortSignal;
}

async function plainAsker({ synapse, bridge, over }: Scene, name: string): Promise<Asker> {
  const user = await synapse.user(name);
  const room = await user.createRoom({ invite: [GHOST] });
  await bridge.settled(room);
  return {
    room,
    question: async (text) => () => accepted(user, room, "m.room.message", questionTo(text), over),
    heard: () => user.messages(room),
  };
}

async function encryptedAsker({ synapse, bridge, over }: Scene, name: string): Promise<Asker> {
  const client = await EncryptingClient.start(await synapse.user(name));
  const room = await encryptedRoom(client.user, [GHOST]);
  await bridge.settled(room);
  return {
    room,
    question: async (text) => {
      // The room's session is replaced from time to time, and must be shared before it is used.
      await client.share(room);
      const content = await client.encrypt(room, "m.room.message", questionTo(text));
      return () => accepted(client.user, room, "m.room.encrypted", content, over);
    },
    heard: () => client.messages(room),
  };
}

type MakeAsker = typeof plainAsker;

async function stopAndAsk(
  t: TestContext,
  options: { stops: number; encryption: Readonly<Record<string, unknown>>; askers: readonly MakeAsker[] },
): Promise<void> {
  const ending = new AbortController();
  // After a failure too, and first of all: this process does not end while somebody asks.
  t.after(() => ending.abort());
  const synapse = await startSynapse();
  t.after(() => synapse.dispose());
  const bridgePort = await freePort();
  await slowTransactions(t, synapse.bridge.port, bridgePort, TRANSACTION_DELAY_MS);
  const { encryption } = options;
  const bridge = await encryptedBridge(t, { ...synapse, bridge: { port: bridgePort } }, { encryption });
  await bridge.start();
  const askers = await Promise.all(
    Array.from({ length: ROOMS }, (_, index) => {
      const make = options.askers[index % options.askers.length] ?? plainAsker;
      return make({ synapse, bridge, over: ending.signal }, `person${index}`);
    }),
  );

  const asked = new Map<EventId, Asker>();
  const recoveryMs: number[] = [];
  let acceptedBefore = 0;
  for (let stop = 0; stop < options.stops; stop++) {
    const readied = await Promise.all(
      askers.map(async (asker) => {
        const questions: (() => Promise<EventId>)[] = [];
        for (let index = 0; index < QUESTIONS; index++) {
          questions.push(await asker.question(`stop ${stop}, question ${index}`));
        }
        return { asker, questions };
      }),
    );
    const before = asked.size;
    const asking = readied.flatMap(({ asker, questions }) =>
      questions.map(async (ask) => {
        const event = await ask();
        asked.set(event, asker);
        return event;
      }),
    );
    for (const question of asking) question.catch(() => undefined);
    const first = 1 + Math.floor(Math.random() * (asking.length - 1));
    await eventually("some are accepted", async () => (asked.size - before >= first ? true : undefined));
    await systemClock.sleep(Math.random() * STOP_WITHIN_MS);
    acceptedBefore += asked.size - before;
    await (stop % 2 === 0 ? synapse.kill() : synapse.stop());
    await synapse.start();
    const isBack = performance.now();
    const events = await Promise.all(asking);
    await eventually(
      `stop ${stop}: all questions are answered`,
      async () => {
        const rows = await bridge.rows<{ count: number }>(
          `SELECT count(*)::int AS count FROM bridge_delegations
           WHERE matrix_event_id = ANY ($1) AND state = 'completed' AND terminal_reason = 'answered'`,
          [events],
        );
        return rows[0]?.count === events.length ? true : undefined;
      },
      PATIENCE_MS,
    );
    recoveryMs.push(performance.now() - isBack);
  }

  for (const asker of askers) {
    const questions = [...asked].filter(([, of]) => of === asker).map(([event]) => event);
    const heard = await asker.heard();
    const replied = heard.map(repliesTo).filter((event) => event !== undefined);
    assert.deepEqual(replied.toSorted(), questions.toSorted(), "each question has one answer");
    const rows = await bridge.rows<{ matrix_event_id: EventId }>(
      "SELECT matrix_event_id FROM bridge_delegations WHERE room_id = $1 ORDER BY room_seq",
      [asker.room],
    );
    const inOrder = heard.map(({ event_id }) => event_id).filter((event) => asked.has(event as EventId));
    assert.deepEqual(
      rows.map((row) => row.matrix_event_id),
      inOrder,
      "in the room's order",
    );
  }
  const [found] = await bridge.rows<{ caughtUp: number; total: number }>(
    `SELECT count(*) FILTER (WHERE ingress = 'recovered')::int AS "caughtUp", count(*)::int AS total
     FROM bridge_delegations`,
  );
  assert.equal(found?.total, asked.size);
  const sorted = recoveryMs.toSorted((left, right) => left - right);
  const at = (share: number) => Math.round(sorted[Math.floor(share * (sorted.length - 1))] ?? 0);
  t.diagnostic(
    `${options.stops} stops, ${asked.size} questions, ${acceptedBefore} of them accepted before a stop, ` +
      `${found?.caughtUp} by catchup; ` +
      `all answered ${at(0.5)} ms (median), ${at(1)} ms (longest) after the homeserver was back`,
  );
  for (const line of (await bridge.metrics()).split("\n")) {
    if (line.startsWith("drawbridge_catchup_events_total")) t.diagnostic(line);
  }
}

describe("a homeserver that stops", () => {
  it("each question in a plain room is answered once, however often the homeserver stops [INT-8]", (t) =>
    stopAndAsk(t, { stops: stopsOf(100), encryption: { mode: "refuse" }, askers: [plainAsker] }));

  it("each question in an encrypted room is answered once, however often the homeserver stops [INT-8]", (t) =>
    stopAndAsk(t, { stops: stopsOf(100), encryption: { mode: "on" }, askers: [encryptedAsker, plainAsker] }));
});
