// The primary of a replicated database is killed while people ask in plain and in encrypted rooms: no question that the
// homeserver has handed over is lost, none is answered twice, and the bridge pauses hardly longer than the database.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { isFor, transactionIdIn } from "../../src/bridge/ledger/transaction-ids.ts";
import { systemClock } from "../../src/domain/clock.ts";
import type { EventId, RoomId } from "../../src/domain/identifiers.ts";
import {
  type AnotherBridge,
  encryptedBridge,
  eventually,
  GHOST,
  questionTo,
} from "../support/encrypted-bridge.ts";
import { EncryptingClient, encryptedRoom, repliesTo } from "../support/encrypting-client.ts";
import { failoversOf } from "../support/kills.ts";
import { type RoomMessage, startSynapse, type TestSynapse } from "../support/synapse.ts";
import { startPatroni } from "./patroni.ts";

const FAILOVERS = failoversOf(20);
const ROOMS = { plain: 6, encrypted: 2 };
const PER_SECOND = 10;
/** A session of an encrypted room ends after a hundred messages; the library panics on one more. */
const MESSAGES_PER_SESSION = 50;
/** Asked and not answered, at most. */
const OPEN_MAX = 200;
/** Longer than a failover: a transaction waits in the process that it came to. */
const BALANCER_PATIENCE_MS = 60_000;
const PATIENCE_MS = 300_000;
/** Longer than the database. */
const ALLOWED_MS = 2_000;

let synapse: TestSynapse;
before(async () => {
  synapse = await startSynapse();
});
after(() => synapse.dispose());

/** An event with an answer; in an encrypted room its transaction ID says that it is one. */
const isSaid = ({ sender, content }: RoomMessage) => {
  const id = transactionIdIn(content);
  return sender === GHOST && id !== undefined && isFor(id, "reply");
};
const quantile = (sorted: readonly number[], at: number) => sorted[Math.floor((sorted.length - 1) * at)] ?? 0;

describe("a replicated database", () => {
  it(`loses and repeats nothing when its primary is killed ${FAILOVERS} times, and the bridge follows within ${ALLOWED_MS} ms, in encrypted rooms too [DEL-9] [INT-3] [OPS-3]`, async (t) => {
    let isOver = false;
    t.after(() => {
      isOver = true;
    });
    const cluster = await startPatroni(t);
    await cluster.administer("CREATE DATABASE bridge");
    const bridge = await encryptedBridge(t, synapse, {
      databaseUrl: cluster.url("bridge"),
      limits: { roomQueue: 4_000, senderEnvelopes: 4_000, serverEnvelopes: 4_000 },
    });
    const processes: AnotherBridge[] = [];
    for (let index = 0; index < 2; index++) {
      const one = await bridge.spawnAnother();
      processes.push(one);
      if (index === 0) bridge.reach(one);
      await eventually("the process takes transactions", async () => {
        const unready = await bridge.unready(one);
        if (unready.length > 0) throw new Error(unready.join());
        return true;
      });
    }
    bridge.reachAny(processes, BALANCER_PATIENCE_MS);
    // The homeserver may have called before the first process listened.
    const refusedAtFirst = bridge.failedRequests();

    const alice = await EncryptingClient.start(await synapse.user("alice"));
    t.after(() => alice.close());
    const rooms: { readonly room: RoomId; readonly isPlain: boolean }[] = [];
    for (let index = 0; index < ROOMS.plain + ROOMS.encrypted; index++) {
      const isPlain = index < ROOMS.plain;
      const room = isPlain
        ? await alice.user.createRoom({ invite: [GHOST] })
        : await encryptedRoom(alice.user, [GHOST]);
      await bridge.settled(room);
      if (!isPlain) await alice.share(room);
      rooms.push({ room, isPlain });
    }
    const asked: { readonly room: RoomId; readonly event: EventId }[] = [];
    /** By kind of room. */
    let answered = { plain: 0, encrypted: 0 };
    const failures: unknown[] = [];
    const ask = async (room: RoomId, isPlain: boolean, body: string) => {
      const content = questionTo(body);
      const event = isPlain
        ? await alice.sendRaw(room, content, "m.room.message")
        : await alice.sendRaw(room, await alice.encrypt(room, "m.room.message", content));
      asked.push({ room, event });
    };
    const pauseMs = (1_000 * rooms.length) / PER_SECOND;
    const asking = async ({ room, isPlain }: (typeof rooms)[number]) => {
      for (let count = 0; !isOver; count++) {
        const next = systemClock.now() + pauseMs;
        if (!isPlain && count % MESSAGES_PER_SESSION === MESSAGES_PER_SESSION - 1) {
          await alice.share(room, { rotate: true }).catch((error: unknown) => failures.push(error));
        }
        if (asked.length - answered.plain - answered.encrypted < OPEN_MAX) {
          await ask(room, isPlain, `question ${count}`).catch((error: unknown) => failures.push(error));
        }
        await systemClock.sleep(Math.max(0, next - systemClock.now()));
      }
    };
    const ended = `SELECT count(*) FILTER (WHERE NOT encrypted)::int AS plain, count(*) FILTER (WHERE encrypted)::int AS encrypted
      FROM bridge_delegations JOIN bridge_rooms USING (room_id) WHERE terminal_at IS NOT NULL`;
    const counting = async () => {
      for (; !isOver; await systemClock.sleep(500)) {
        answered = (await bridge.rows<typeof answered>(ended).catch(() => []))[0] ?? answered;
      }
    };
    const someAreAnswered = async () => {
      const { plain, encrypted } = answered;
      await eventually("questions are answered in rooms of both kinds", async () =>
        answered.plain > plain + 7 && answered.encrypted > encrypted + 2 ? true : undefined,
      );
    };
    const load = [counting(), ...rooms.map(asking)];

    const failovers: { readonly killedAt: number; readonly primaryAt: number; readonly writeAt: number }[] =
      [];
    for (let number = 0; number < FAILOVERS; number++) {
      const primary = await cluster.healthy();
      await someAreAnswered();
      await systemClock.sleep(Math.random() * 1_000);
      const killedAt = Date.now();
      const failover = cluster.failover(primary);
      cluster.kill(primary);
      failovers.push({ killedAt, ...(await failover) });
    }
    await cluster.healthy();
    await someAreAnswered();
    isOver = true;
    await Promise.all(load);
    assert.deepEqual(failures, []);
    await eventually(
      "every question has ended",
      async () => {
        const { plain = 0, encrypted = 0 } = (await bridge.rows<typeof answered>(ended))[0] ?? {};
        if (plain + encrypted !== asked.length) throw new Error(`${plain + encrypted} of ${asked.length}`);
        return true;
      },
      PATIENCE_MS,
    );

    // As the people see it.
    const answeredAt: Record<"plain" | "encrypted", number[]> = { plain: [], encrypted: [] };
    for (const { room, isPlain } of rooms) {
      const sent = (await alice.rawEvents(room)) as readonly (RoomMessage & { origin_server_ts: number })[];
      const times = sent.filter(isSaid).map((event) => event.origin_server_ts);
      answeredAt[isPlain ? "plain" : "encrypted"].push(...times);
    }
    const pauses = { plain: [] as number[], encrypted: [] as number[] };
    /** Beyond the first write on the new primary. */
    const excess = { plain: [] as number[], encrypted: [] as number[] };
    for (const [index, { killedAt, primaryAt, writeAt }] of failovers.entries()) {
      const pauseOf = (kind: "plain" | "encrypted") => {
        const times = answeredAt[kind].toSorted((left, right) => left - right);
        const until = times.find((time) => time > writeAt) ?? Number.NaN;
        const from = times.findLast((time) => time < until && time <= writeAt) ?? Number.NaN;
        return until - Math.max(from, killedAt);
      };
      const [plain, encrypted] = [pauseOf("plain"), pauseOf("encrypted")];
      pauses.plain.push(plain);
      pauses.encrypted.push(encrypted);
      excess.plain.push(plain - (writeAt - killedAt));
      excess.encrypted.push(encrypted - (writeAt - killedAt));
      t.diagnostic(
        `failover ${index + 1}: new primary after ${primaryAt - killedAt} ms, its first write after ` +
          `${writeAt - killedAt} ms; no answer for ${plain} ms in plain rooms, ${encrypted} ms in encrypted ones`,
      );
    }
    const line = (what: string, values: readonly number[]) => {
      const sorted = values.toSorted((left, right) => left - right);
      t.diagnostic(`${what}: median ${quantile(sorted, 0.5)} ms, longest ${quantile(sorted, 1)} ms`);
    };
    t.diagnostic(`${FAILOVERS} failovers, ${asked.length} questions`);
    line(
      "new primary by Patroni",
      failovers.map((one) => one.primaryAt - one.killedAt),
    );
    line(
      "first write on it",
      failovers.map((one) => one.writeAt - one.killedAt),
    );
    line("pause in plain rooms", pauses.plain);
    line("pause in encrypted rooms", pauses.encrypted);
    line("pause in plain rooms beyond the first write", excess.plain);
    line("pause in encrypted rooms beyond the first write", excess.encrypted);
    for (const { room } of rooms) {
      // What a ghost says while a question takes long is a notice.
      const answers = (await alice.messages(room)).filter(
        ({ sender, content }) => sender === GHOST && content["msgtype"] !== "m.notice",
      );
      const here = asked.filter((one) => one.room === room).map(({ event }) => event);
      assert.deepEqual(answers.map(repliesTo).toSorted(), here.toSorted(), "each question has one answer");
    }
    const outcomes = await bridge.rows(
      "SELECT state, terminal_reason AS reason, count(*)::int AS n FROM bridge_delegations GROUP BY 1, 2",
    );
    assert.deepEqual(outcomes, [{ state: "completed", reason: "answered", n: asked.length }]);
    const refusedLater = bridge.failedRequests() - refusedAtFirst;
    const logs = await Promise.all(
      processes.map(async ({ running }) => {
        running.child.kill("SIGTERM");
        return (await running.finished).stdout;
      }),
    );
    const refusals = logs
      .join("\n")
      .split("\n")
      .filter((said) => said.includes("a request of the homeserver failed"));
    assert.deepEqual([refusals, refusedLater], [[], 0], "no transaction was refused");
    for (const kind of ["plain", "encrypted"] as const) {
      const longest = Math.max(...excess[kind]);
      assert.ok(
        longest <= ALLOWED_MS,
        `in ${kind} rooms the bridge paused for ${longest} ms longer than the database`,
      );
    }
  });
});
