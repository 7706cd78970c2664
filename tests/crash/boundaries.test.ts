// The bridge is killed at each of the fifteen boundaries, on a real Synapse with a real agent: what was asked is answered or
// canceled once, whoever goes on. A short run meets each boundary once, in each kind of room in turn.
// What is asserted of each, and which change of the code each was seen to fail with: docs/reference/crash-boundaries.md.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import type { EventId } from "../../src/domain/identifiers.ts";
import { databaseText } from "../support/database.ts";
import { eventually, GHOST } from "../support/encrypted-bridge.ts";
import type { FailpointName } from "../support/failpoints.ts";
import { isShortRun } from "../support/kills.ts";
import {
  auditedOf,
  BOUNDARIES,
  type Boundary,
  CANARY,
  type CrashScene,
  crashScene,
  Exchange,
  lastWord,
  PATIENCE_MS,
  type RoomKind,
  saidBy,
} from "./boundaries.ts";

interface Case {
  readonly name: FailpointName;
  readonly kind: RoomKind;
  /** How often the bridge is killed, one kill right after the other. */
  readonly kills: 1 | 2;
  /** How many processes run: with two, the other one takes over. */
  readonly processes: 1 | 2;
}

const NAMES = Object.keys(BOUNDARIES) as FailpointName[];
const WHOLE: readonly Case[] = NAMES.flatMap((name) =>
  ([1, 2] as const).flatMap((processes) =>
    BOUNDARIES[name].rooms.flatMap((kind) =>
      ([1, 2] as const).map((kills) => ({ name, kind, kills, processes })),
    ),
  ),
);
/** Both kinds of room and both numbers of kills and of processes are among them. */
const SHORT: readonly Case[] = NAMES.map((name, index) => {
  const { rooms } = BOUNDARIES[name];
  const kind = rooms[index % rooms.length] ?? "encrypted";
  return { name, kind, kills: index % 5 === 4 ? 2 : 1, processes: index % 3 === 2 ? 2 : 1 };
});
const CASES = (isShortRun() ? SHORT : WHOLE).toSorted((left, right) => left.processes - right.processes);

const titleOf = ({ kind, kills, processes }: Case) =>
  `in ${kind === "plain" ? "a plain" : "an encrypted"} room, killed ${kills === 1 ? "once" : "twice"}, ` +
  (processes === 1 ? "alone" : "beside another process");

describe("a bridge that is killed at a boundary", () => {
  let scene: CrashScene;
  const done: { readonly boundary: Boundary; readonly exchange: Exchange }[] = [];
  const disposers: (() => unknown)[] = [];
  before(async () => {
    scene = await crashScene({ after: (dispose: () => unknown) => void disposers.push(dispose) } as never);
  });
  after(async () => {
    for (const dispose of disposers) await dispose();
  });

  for (const one of CASES) {
    it(`at ${one.name} loses and repeats nothing ${titleOf(one)} [CRA-1] [DEL-9]`, async () => {
      const { name, kind, kills, processes } = one;
      const boundary = BOUNDARIES[name];
      const { agent } = scene.bridge;
      agent.behaviour.releaseAll();
      agent.behaviour.plan = boundary.plan;
      scene.kills.clear();
      await scene.running(processes);
      const exchange = new Exchange(scene, kind, await scene.room(kind));
      await boundary.before?.(exchange);
      scene.kills.arm(name, kills);
      await boundary.act(exchange);
      for (let killed = 0; killed < kills; killed++) await scene.died(name, processes);
      assert.equal(scene.kills.left(name), 0);
      await boundary.after?.(exchange);
      await ended(exchange, boundary);
      const { started, canceled, addressed } = agent.behaviour;
      exchange.journal = {
        started: started.slice(exchange.since.started),
        tasks: new Set(addressed.slice(exchange.since.started).map(({ taskId }) => taskId)).size,
        canceled: canceled.length - exchange.since.canceled,
      };
      done.push({ boundary, exchange });
      await judge(exchange, boundary);
    });
  }

  it("leaves nothing that comes later, and nothing of what was said [CRA-1] [AUD-2]", async () => {
    assert.ok(done.length > 0);
    for (const { boundary, exchange } of done) await judge(exchange, boundary);
    const text = await databaseText((query) => scene.bridge.rows(query));
    const holding = [...text].filter(([, rows]) => rows.includes(CANARY)).map(([table]) => table);
    assert.deepEqual(holding, []);
  });
});

/** Waits until everything that must come has come. */
async function ended(exchange: Exchange, { ends }: Boundary): Promise<void> {
  const { room, scene } = exchange;
  await exchange.until(
    "the delegation has ended, and its status message with it",
    `SELECT 1 FROM bridge_delegations d WHERE room_id = $1 AND terminal_at IS NOT NULL
     AND NOT EXISTS (SELECT FROM bridge_statuses WHERE delegation_id = d.id)`,
  );
  const isThere = async (person: CrashScene["alice"]) => {
    const { counts } = await saidBy(GHOST, room, person);
    return Object.entries(ends.said).every(([purpose, count]) => (counts[purpose] ?? 0) >= count);
  };
  await eventually(
    "both people see what was said",
    async () => ((await isThere(scene.alice)) && (await isThere(scene.bob)) ? true : undefined),
    PATIENCE_MS,
  );
  await eventually(
    "the homeserver has the acknowledgement",
    async () => (scene.kills.isAcknowledged() ? true : undefined),
    PATIENCE_MS,
  );
  await eventually(
    "the audit record is in the file",
    async () => (auditedOf(scene.bridge, exchange.question).length > 0 ? true : undefined),
    PATIENCE_MS,
  );
}

async function judge(exchange: Exchange, boundary: Boundary): Promise<void> {
  const { question } = exchange;
  const { ends } = boundary;
  const rows = await exchange.rows(
    "SELECT matrix_event_id, terminal_reason, prompt, options FROM bridge_delegations WHERE room_id = $1",
  );
  const cleared = { prompt: null, options: null };
  assert.deepEqual(
    rows,
    [{ matrix_event_id: question, terminal_reason: ends.reason, ...cleared }],
    "one delegation",
  );
  const kept = await exchange.rows(
    `SELECT s.purpose FROM bridge_sends s JOIN bridge_delegations d ON d.id = s.delegation_id
     WHERE d.room_id = $1 AND s.content IS NOT NULL`,
  );
  assert.deepEqual(kept, [], "content is cleared");
  await judgeEnvelopes(exchange, boundary);
  await judgeRoom(exchange, boundary);
  judgeJournal(exchange, boundary);
  await judgeAudit(exchange, question, ends.reason === "answered" ? "completed" : "canceled");
}

async function judgeEnvelopes(exchange: Exchange, { ends }: Boundary): Promise<void> {
  const { kind, question } = exchange;
  const envelopes = await exchange.rows<{ event: EventId; state: string }>(
    "SELECT matrix_event_id AS event, state FROM bridge_encrypted_intake WHERE room_id = $1",
  );
  assert.ok(
    envelopes.every(({ state }) => state === "derived"),
    "each intake envelope was reclaimed and derived",
  );
  if (ends.waited === true && kind === "encrypted") {
    assert.ok(
      envelopes.some(({ event }) => event === question),
      "the question waited in an intake envelope",
    );
  }
}

async function judgeRoom({ scene, room, kind }: Exchange, boundary: Boundary): Promise<void> {
  const { ends } = boundary;
  const [byAlice, byBob] = [await saidBy(GHOST, room, scene.alice), await saidBy(GHOST, room, scene.bob)];
  assert.deepEqual(byAlice.ids, byBob.ids, "both people see the same events");
  assert.equal(new Set(byAlice.transactionIds).size, byAlice.transactionIds.length, "nothing was sent twice");
  assert.deepEqual([...byAlice.types], [kind === "plain" ? "m.room.message" : "m.room.encrypted"]);
  const { progress = 0, ...counts } = byAlice.counts;
  assert.deepEqual(counts, { reply: 0, question: 0, notice: 0, ...ends.said });
  assert.ok(ends.shown === true ? progress === 1 : progress <= 1, "at most one status message");
  if (ends.reason === "answered") {
    assert.deepEqual(
      [byAlice.bodies("reply"), byBob.bodies("reply")],
      [[lastWord(boundary)], [lastWord(boundary)]],
    );
  }
  if (ends.shown === true)
    assert.deepEqual(byAlice.pinned, [[byAlice.event("progress")], []], "pinned once, unpinned once");
}

function judgeJournal({ journal }: Exchange, { ends }: Boundary): void {
  assert.ok(journal);
  assert.equal(new Set(journal.started).size, journal.started.length, "no message was worked on twice");
  const { started, tasks, canceled } = journal;
  const expected = { messages: ends.messages, tasks: 1, canceled: ends.reason === "sender_canceled" ? 1 : 0 };
  assert.deepEqual({ messages: started.length, tasks, canceled }, expected, "the agent has one task");
}

async function judgeAudit({ scene }: Exchange, question: EventId, outcome: string): Promise<void> {
  const written = auditedOf(scene.bridge, question);
  assert.deepEqual(
    written.map((record) => [record["schema"], record["outcome"]]),
    [["svc.delegation.v1", outcome]],
    "one audit record",
  );
  assert.ok(!JSON.stringify(written).includes(CANARY));
}
