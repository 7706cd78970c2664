// A whole bridge in this process, with its real agent and database and a homeserver in memory: that its parts are connected.
// Waits of a second and more end only when the test sets the clock ahead, so that what is not woken is not found either.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { Client } from "pg";
import { createOperations } from "../../../src/bridge/ledger/operator-commands.ts";
import { createLedgerPool } from "../../../src/bridge/ledger/postgres.ts";
import { openProcessConnection } from "../../../src/bridge/ledger/processes.ts";
import type { RoomId } from "../../../src/domain/identifiers.ts";
import { type LoadHomeserver, type Said, startLoadHomeserver } from "../../crash/load-homeserver.ts";
import {
  type EncryptedBridge,
  type EncryptedBridgeOptions,
  encryptedBridge,
  eventually,
  GHOST,
  questionTo,
} from "../../support/encrypted-bridge.ts";
import { httpServer } from "../../support/http-server.ts";
import { isStatus } from "../../support/lab-questions.ts";
import { SkippingClock } from "../../support/manual-clock.ts";
import { writeFile } from "../../support/temporary.ts";

const ALICE = "@alice:a.test";
const ROOM = "!room:a.test" as RoomId;
const MINUTE = 60_000;
const OBSERVED_EVERY_MS = 250;
/** What is not woken is never found. */
const PATIENCE_MS = 30_000;

interface Whole {
  readonly clock: SkippingClock;
  readonly homeserver: LoadHomeserver;
  readonly bridge: EncryptedBridge;
  readonly url: string;
  /** What a test has opened besides. */
  readonly closing: (() => Promise<unknown>)[];
  /** A plain room with Alice and the ghost, which the bridge knows. */
  room(id?: RoomId): Promise<RoomId>;
  ask(body: string, more?: Readonly<Record<string, unknown>>, room?: RoomId, sender?: string): Said;
  /** Sets the clock ahead. Until the process has looked at the others it may count as ended, and calls no agent. */
  later(ms: number): Promise<void>;
  until<T>(what: string, poll: () => T | undefined | Promise<T | undefined>): Promise<T>;
  /** Locks a table of the bridge against every other use, until the end of the test or the returned function. */
  lock(table: string): Promise<() => Promise<unknown>>;
  /** What the ghost says in reply to an event, by a message of its own. */
  reply(to: Said): Promise<Said>;
}

async function wholeBridge(t: TestContext, options: EncryptedBridgeOptions = {}): Promise<Whole> {
  const clock = new SkippingClock();
  const closing: (() => Promise<unknown>)[] = [];
  // Before the bridge is stopped, because its drain waits by this clock, and its database goes.
  t.after(async () => {
    await Promise.all(closing.map((close) => close()));
    await clock.free();
  });
  const homeserver = await startLoadHomeserver(t);
  const encryption = { mode: "refuse", ...options.encryption };
  const bridge = await encryptedBridge(t, homeserver, { ...options, encryption, clock });
  bridge.agent.behaviour.plan = { kind: "message", text: "the answer" };
  const until: Whole["until"] = (what, poll) => eventually(what, async () => await poll(), PATIENCE_MS);
  const url = readFileSync(join(bridge.folder, "database-url"), "utf8");
  return {
    ...{ clock, homeserver, bridge, until, closing, url },
    lock: async (table) => {
      const other = new Client(url);
      closing.push(() => other.end());
      await other.connect();
      await other.query(`BEGIN; LOCK TABLE ${table} IN ACCESS EXCLUSIVE MODE`);
      return () => other.query("ROLLBACK");
    },
    room: async (id = ROOM) => {
      homeserver.open(id, [ALICE, "@bob:a.test", GHOST], false);
      await bridge.settled(id);
      return id;
    },
    later: async (ms) => {
      await clock.skip(ms);
      const observations = () => clock.waits.filter((wait) => wait === OBSERVED_EVERY_MS).length;
      const before = observations();
      await until("it has observed the processes since", () => observations() >= before + 2 || undefined);
    },
    ask: (body, more = {}, room = ROOM, sender = ALICE) =>
      homeserver.say(room, sender, "m.room.message", { ...questionTo(body), ...more }),
    reply: ({ event_id }) =>
      until(`a reply to ${event_id}`, () =>
        homeserver.sent.find(({ content }) => repliedTo(content) === event_id && !isStatus(content)),
      ),
  };
}

const repliedTo = (content: Readonly<Record<string, unknown>>) =>
  (content["m.relates_to"] as { "m.in_reply_to"?: { event_id?: string } })?.["m.in_reply_to"]?.event_id;

const replyTo = (event_id: string) => ({ "m.relates_to": { "m.in_reply_to": { event_id } } });

describe("a bridge process", () => {
  it("joins, answers, refuses and reports a failure at once, without looking for work by itself", async (t) => {
    const { clock, homeserver, bridge, room, ask, reply, until } = await wholeBridge(t);
    await bridge.start();
    homeserver.open("!new:a.test" as RoomId, [ALICE], false);
    const invited = { membership: "invite" };
    homeserver.say("!new:a.test" as RoomId, ALICE, "m.room.member", invited, { state_key: GHOST });
    await until(
      "the ghost joins",
      () => bridge.logged.some((line) => line.includes("membership joined")) || undefined,
    );
    await room();
    await room("!other:a.test" as RoomId);
    // Both come in one transaction, so that neither is claimed by it.
    const two = [ask("one"), ask("two", {}, "!other:a.test" as RoomId)];
    for (const question of two) assert.equal((await reply(question)).content["body"], "the answer");
    const refused = ask("three", {}, ROOM, "@mallory:b.test");
    assert.match(String((await reply(refused)).content["body"]), /^I did not pass this question on/);
    bridge.agent.fault("send", { kind: "status", status: 403 });
    assert.match(String((await reply(ask("four"))).content["body"]), /^I could not get an answer/);
    await clock.skip(1_000);
    const audit = join(bridge.folder, "audit.jsonl");
    await until("the audit records are exported", () =>
      existsSync(audit) && readFileSync(audit, "utf8").includes("agent_refused") ? true : undefined,
    );
  });

  it("claims a question whose turn it is in the transaction that admits it, and shows the slot in use", async (t) => {
    const issuer = await httpServer(t);
    const answers: (() => void)[] = [];
    issuer.answer = (_, response) => {
      const token = JSON.stringify({ access_token: "token", token_type: "Bearer", expires_in: 300 });
      answers.push(() => response.writeHead(200, { "content-type": "application/json" }).end(token));
    };
    const clientSecret = { file: "client-secrets/docs" };
    const credentials = { tokenEndpoint: `${issuer.url}/token`, clientId: "bridge", clientSecret };
    const { homeserver, bridge, room, ask, reply, until } = await wholeBridge(t, { entry: { credentials } });
    writeFile(join(bridge.folder, "client-secrets", "docs"), "secret");
    await bridge.start();
    await room();
    const beside = homeserver.say(ROOM, ALICE, "m.room.message", { msgtype: "m.text", body: "by the way" });
    const question = ask("a question");
    await until("a token is asked for", () => answers[0] && true);
    // Nothing has written either row since.
    const claimed = await bridge.rows(
      `SELECT d.state, d.xmin = h.xmin AS "atOnce" FROM bridge_delegations d, bridge_handled_events h
       WHERE d.matrix_event_id = $1 AND h.matrix_event_id = $2`,
      [question.event_id, beside.event_id],
    );
    assert.deepEqual(claimed, [{ state: "dispatching", atOnce: true }]);
    const slots = await Promise.all(
      ["request", "stream", "free"].map((kind) => bridge.metric(`drawbridge_slots{kind="${kind}"}`)),
    );
    assert.deepEqual(slots, [1, 0, 63]);
    assert.equal(await bridge.metric('drawbridge_delegations_open{state="dispatching"}'), 1);
    assert.equal(await bridge.metric("drawbridge_processes"), 1);
    for (const answer of answers) answer();
    await reply(question);
    assert.deepEqual(
      bridge.agent.requestsOf("send").map(({ authorization }) => authorization),
      ["Bearer token"],
    );
  });

  it("calls no agent while it may count as ended, and calls it once it surely lives [DEL-9]", async (t) => {
    const { clock, bridge, room, ask, reply, until, later, lock } = await wholeBridge(t);
    await bridge.start();
    await room();
    const unlock = await lock("bridge_ownership");
    await until("its observation of the processes waits", async () => {
      const waits =
        "SELECT FROM pg_stat_activity WHERE application_name = 'drawbridge-process' AND wait_event_type = 'Lock' AND datname = current_database()";
      return (await bridge.rows(waits)).length === 1 || undefined;
    });
    await clock.skip(2_000);
    const question = ask("a question");
    await until("the call was put off", async () => {
      const put = "SELECT FROM bridge_delegations WHERE attempts > 0 AND retry_reason = 'agent_unavailable'";
      return (await bridge.rows(put)).length === 1 || undefined;
    });
    assert.deepEqual(bridge.agent.requests, []);
    await unlock();
    await until("the question is answered", async () => {
      await later(0);
      // It counts as alive for a second.
      await clock.skip(900);
      await bridge.rows("SELECT pg_notify('drawbridge', 'delegations')");
      return (await bridge.rows("SELECT FROM bridge_delegations WHERE state = 'completed'"))[0] && true;
    });
    await reply(question);
    assert.equal(bridge.agent.requestsOf("send").length, 1);
  });

  it("deletes nothing before the clock has run for five minutes, and forgets positions where rooms are not caught up", async (t) => {
    const { clock, bridge, until } = await wholeBridge(t, { config: { catchup: { rooms: false } } });
    await bridge.rows(
      `INSERT INTO bridge_malformed_events (event_sha256, transaction_id, reason, received_at)
       VALUES (sha256('old'), 't', 'content', now() - interval '20 days'), (sha256('new'), 't', 'content', now())`,
    );
    await bridge.start();
    await bridge.rows("UPDATE bridge_ghosts SET rooms_since = 's1'");
    const rounds = async (count: number) =>
      await until("a round of the retention", () =>
        clock.waits.filter((ms) => ms === 10 * MINUTE).length === count ? true : undefined,
      );
    const left = async () =>
      await bridge.rows(
        `SELECT (SELECT count(*)::int FROM bridge_malformed_events) AS events, rooms_since AS position FROM bridge_ghosts`,
      );
    await until("the database's marker is advanced", async () => {
      return (await bridge.rows("SELECT FROM bridge_database_marker WHERE count > 0"))[0] && true;
    });
    await rounds(1);
    assert.deepEqual(await left(), [{ events: 2, position: "s1" }]);
    await clock.skip(10 * MINUTE);
    await rounds(2);
    assert.deepEqual(await left(), [{ events: 1, position: null }]);
    assert.equal(await bridge.metric('drawbridge_rows_deleted_total{kind="malformed_events"}'), 1);
  });

  it("hears of a cancellation from the other processes, and tells them of one [DEL-9]", async (t) => {
    const streaming = { streaming: true };
    const whole = await wholeBridge(t, { agent: streaming, card: streaming });
    const { clock, homeserver, bridge, room, ask, reply, until, url, closing } = whole;
    await bridge.start();
    const heard: string[] = [];
    const other = await openProcessConnection(url, (message) => heard.push(message));
    // Else the server ends it.
    const observing = setInterval(() => void other.observe().catch(() => undefined), 200);
    const pool = createLedgerPool({ connectionString: url, max: 1 });
    closing.push(
      async () => clearInterval(observing),
      () => other.close(),
      () => pool.end(),
    );
    await until("the process knows of the other one", async () =>
      (await bridge.metric("drawbridge_processes")) === 2 ? true : undefined,
    );
    await room();
    bridge.agent.behaviour.plan = { kind: "slow", text: "never" };
    const followed = async (body: string) => {
      const question = ask(body);
      const of = "SELECT id FROM bridge_delegations WHERE matrix_event_id = $1 AND state = 'following'";
      const id = await until("the agent works", async () => {
        return (await bridge.rows<{ id: string }>(of, [question.event_id]))[0]?.id;
      });
      return { question, id };
    };

    // What nobody told this process it would learn when it renews its leases.
    const first = await followed("one");
    const operations = createOperations(pool, MINUTE);
    assert.equal(await operations.cancelDelegation(first.id, clock.now()), "requested");
    await other.notify(`cancel:${first.id}`);
    assert.match(String((await reply(first.question)).content["body"]), /^I have stopped working/);

    const second = await followed("two");
    const command = { msgtype: "m.text", body: "!cancel", ...replyTo(second.question.event_id) };
    homeserver.say(ROOM, ALICE, "m.room.message", command);
    await until("the others are told", () => heard.includes(`cancel:${second.id}`) || undefined);
    assert.match(String((await reply(second.question)).content["body"]), /^I have canceled/);
    assert.equal(bridge.agent.behaviour.canceled.length, 2);
  });

  it("takes the limits and the language of its configuration: a room's queue and gate, the notices' interval, a conversation's lifetime, a transaction's size", async (t) => {
    const limits = {
      transactionBodyBytes: 8_192,
      roomQueue: 2,
      roomGate: "30s",
      noticeInterval: "5m",
      contextLifetime: "1m",
    };
    const config = { catchup: { rooms: false }, language: { rooms: { [ROOM]: "de" } } };
    const whole = await wholeBridge(t, { limits, config });
    const { clock, homeserver, bridge, room, ask, reply, until, later } = whole;
    await bridge.start();
    await room();
    const { agent } = bridge;
    /** Has it recorded what it has sent. */
    const ended = async () =>
      await until("nothing is open", async () => {
        const open = "SELECT FROM bridge_delegations WHERE terminal_at IS NULL";
        return (await bridge.rows(open)).length === 0 || undefined;
      });
    const answer = await reply(ask("one"));
    await ended();
    await reply(ask("two", replyTo(answer.event_id)));
    await ended();
    await later(2 * MINUTE);
    await reply(ask("three", replyTo(answer.event_id)));
    await ended();
    const [first, second, third] = agent.behaviour.addressed.map(({ contextId }) => contextId);
    assert.equal(second, first, "it continues");
    assert.notEqual(third, first, "the conversation is over");

    agent.fault("send", { kind: "status", status: 404 }, 100);
    const head = ask("four");
    const isTried = async () =>
      await until("it is tried", () => agent.requestsOf("send").length > 3 || undefined);
    await isTried();
    const behind = ask("five");
    const refused = ask("six");
    assert.match(String((await reply(refused)).content["body"]), /^Ich konnte diese Frage nicht annehmen/);
    const triedAt = async ({ event_id }: Said) => {
      const of = "SELECT tried_at AS at FROM bridge_delegations WHERE matrix_event_id = $1";
      return (await bridge.rows<{ at: Date | null }>(of, [event_id]))[0]?.at ?? undefined;
    };
    for (let second = 0; second < 60 && (await triedAt(behind)) === undefined; second++)
      await clock.skip(1_000);
    const heldMs = Number(await triedAt(behind)) - Number(await triedAt(head));
    assert.ok(heldMs >= 30_000 && heldMs < 60_000, `the head held its room for ${heldMs} ms`);

    ask("seven");
    await until("it is refused as well", async () => {
      const denied = "SELECT FROM bridge_delegations WHERE terminal_reason = 'room_capacity_exceeded'";
      return (await bridge.rows(denied)).length === 2 || undefined;
    });
    const notices = "SELECT FROM bridge_notices WHERE kind = 'capacity_exceeded'";
    assert.equal((await bridge.rows(notices)).length, 1);
    ask("x".repeat(10_000));
    await until("it is too long for a transaction", () => homeserver.refusals.includes("413") || undefined);
  });

  it("takes a transaction whose connection to the database ends, and goes on at once with what its own ended connection held [INT-5] [DEL-9]", async (t) => {
    const streaming = { streaming: true };
    const whole = await wholeBridge(t, { agent: streaming, card: streaming });
    const { homeserver, bridge, room, ask, reply, until, lock } = whole;
    bridge.agent.behaviour.plan = { kind: "slow", text: "the answer" };
    await bridge.start();
    await room();
    const unlock = await lock("bridge_handled_events");
    const question = ask("a question");
    let ends = 0;
    await until("its admission is ended again and again", async () => {
      const end = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE application_name = 'drawbridge-bridge' AND wait_event_type = 'Lock' AND datname = current_database()`;
      ends += (await bridge.rows(end)).length;
      return ends > 8 || undefined;
    });
    await unlock();
    const followed = async () =>
      await until("the agent's task is followed", async () => {
        const of = "SELECT FROM bridge_delegations WHERE state = 'following' AND lease_holder = $1";
        const [last] = await bridge.rows<{ number: string }>(
          "SELECT last_value AS number FROM bridge_process",
        );
        return (await bridge.rows(of, [last?.number])).length === 1 || undefined;
      });
    await followed();
    assert.deepEqual(homeserver.refusals, []);
    const subscribed = bridge.agent.requestsOf("subscribe").length;
    await bridge.rows(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
       WHERE application_name = 'drawbridge-process' AND datname = current_database()`,
    );
    await until(
      "it is followed anew",
      () => bridge.agent.requestsOf("subscribe").length > subscribed || undefined,
    );
    await followed();
    bridge.agent.behaviour.releaseAll();
    assert.equal((await reply(question)).content["body"], "the answer");
    assert.equal(bridge.agent.requestsOf("stream").length, 1);
  });

  it("counts the errors of each of its workers [OPS-2]", async (t) => {
    const { clock, bridge, until } = await wholeBridge(t);
    await bridge.start();
    // Each of these columns is read by the claims, or the rounds, of one worker.
    for (const [table, column] of [
      ["bridge_notices", "asker_mxid"],
      ["bridge_ghost_rooms", "attempts"],
      ["bridge_statuses", "attempts"],
      ["bridge_audit", "exported_at"],
      ["bridge_targets", "checked_at"],
      ["bridge_limiter", "refilled_at"],
    ]) {
      await bridge.rows(`ALTER TABLE ${table} RENAME COLUMN ${column} TO renamed`);
    }
    for (const worker of ["notices", "memberships", "statuses", "audit", "profiles", "retention"]) {
      await until(`an error of ${worker} is counted`, async () => {
        await clock.skip(MINUTE);
        const count = `drawbridge_worker_errors_total{worker="${worker}"}`;
        return (await bridge.metric(count)) > 0 || undefined;
      });
    }
  });
});
