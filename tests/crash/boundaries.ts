// The fifteen boundaries of a crash as data: in which rooms each exists, what people and the agent do until the bridge comes
// to it, and what must have come of it in the end. And what they happen in: a real Synapse with two people, an agent, and
// bridge processes that die where a test arms a kill.
// Invariants: a boundary and its failpoint have one name; all is done through the homeserver and the agent alone; the leases
// outlast every test, so that only the end of a process releases what it held; whatever is counted is counted in a room of
// its own.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { isFor, transactionIdIn } from "../../src/bridge/ledger/transaction-ids.ts";
import type { EventId, RoomId, TransactionId } from "../../src/domain/identifiers.ts";
import {
  type AnotherBridge,
  type EncryptedBridge,
  encryptedBridge,
  eventually,
  GHOST,
  questionTo,
} from "../support/encrypted-bridge.ts";
import { EncryptingClient } from "../support/encrypting-client.ts";
import { ArmedKills, type FailpointName, KILLS_FOLDER } from "../support/failpoints.ts";
import { completes, type Plan } from "../support/fault-agent-behaviour.ts";
import { type RoomMessage, startSynapse } from "../support/synapse.ts";
import { ROOT, start, temporaryFolder } from "../support/temporary.ts";

const PROGRAM = [join(ROOT, "tests/crash/killable-bridge.ts"), join(ROOT, "src/cli/main.ts")] as const;
/** Longer than any test. */
const LEASE = "1h";
/** A homeserver that was refused comes again after a minute or later, and so long a busy machine may take. */
export const PATIENCE_MS = 120_000;

export type RoomKind = "plain" | "encrypted";

export interface CrashScene {
  readonly bridge: EncryptedBridge;
  readonly alice: EncryptingClient;
  readonly bob: EncryptingClient;
  readonly kills: ArmedKills;
  /** Has exactly so many processes run, each of which takes transactions. */
  running(processes: number): Promise<void>;
  /** A new room with both people and the ghost, which may pin in it. */
  room(kind: RoomKind): Promise<RoomId>;
  /** Waits until a process has died by its own kill; starts another one if fewer than `processes` are left. */
  died(name: FailpointName, processes: number): Promise<void>;
}

export async function crashScene(t: Pick<TestContext, "after">): Promise<CrashScene> {
  const synapse = await startSynapse();
  const folder = join(temporaryFolder(t), "kills");
  const kills = new ArmedKills(folder);
  const env = { ...process.env, [KILLS_FOLDER]: folder };
  const [preload, program] = PROGRAM;
  const bridge = await encryptedBridge(t, synapse, {
    limits: { lease: LEASE },
    start: (file) =>
      start(process.execPath, ["--import", preload, program, "bridge", "--config", file], { env }),
  });
  t.after(() => synapse.dispose());
  const [alice, bob] = await Promise.all(
    ["alice", "bob"].map(async (name) => EncryptingClient.start(await synapse.user(name))),
  );
  assert.ok(alice && bob);
  t.after(() => {
    for (const one of [alice, bob]) one.close();
  });
  bridge.onAcknowledged = ({ events }) => {
    const said = events as readonly { readonly type: string; readonly sender: string }[];
    if (said.some(({ type, sender }) => sender !== GHOST && /^m\.room\.(message|encrypted)$/.test(type)))
      kills.acknowledge();
  };

  let live: AnotherBridge[] = [];
  const reach = () => bridge.reachAny(live);
  const startOne = async (ports?: AnotherBridge) => {
    live.push(await bridge.spawnAnother(ports));
    reach();
  };
  const isUp = async (one: AnotherBridge) => {
    const early = one.running.finished.then(({ stderr }) => assert.fail(`a process ended: ${stderr}`));
    await Promise.race([early, takesTransactions(one)]);
  };
  const takesTransactions = (one: AnotherBridge) =>
    eventually("the process takes transactions", async () => {
      const unready = await bridge.unready(one);
      if (unready.length > 0) throw new Error(unready.join());
      return true;
    });
  const ended = (one: AnotherBridge) =>
    one.running.child.exitCode !== null || one.running.child.signalCode !== null;

  return {
    bridge,
    alice,
    bob,
    kills,
    running: async (processes) => {
      live = live.filter((one) => !ended(one));
      for (const one of live.splice(processes)) {
        one.running.child.kill("SIGKILL");
        await one.running.finished;
      }
      reach();
      while (live.length < processes) await startOne();
      await Promise.all(live.map(isUp));
    },
    room: async (kind) => {
      const encryption = {
        type: "m.room.encryption",
        state_key: "",
        content: { algorithm: "m.megolm.v1.aes-sha2" },
      };
      const room = await alice.user.createRoom({
        invite: [GHOST, bob.user.userId],
        power_level_content_override: { events: { "m.room.pinned_events": 0 } },
        initial_state: kind === "encrypted" ? [encryption] : [],
      });
      await bob.user.call("POST", `/join/${encodeURIComponent(room)}`, {});
      await bridge.settled(room);
      return room;
    },
    died: async (name, processes) => {
      const dead = await eventually(`a process dies at ${name}`, async () => live.find(ended), PATIENCE_MS);
      const { signal, stderr } = await dead.running.finished;
      assert.deepEqual([signal, stderr], ["SIGKILL", ""]);
      live = live.filter((one) => one !== dead);
      reach();
      if (live.length < processes) await startOne(dead);
    },
  };
}

/** What a ghost has sent into a room, for one purpose. */
export interface Sent {
  readonly transactionId: TransactionId;
  readonly event: RoomMessage;
}

const PURPOSES = ["reply", "question", "notice", "progress"] as const;
export type Purpose = (typeof PURPOSES)[number];

/** The ghost's events in a room as one person sees them, by their purpose, edits left out; decrypted where they can be. */
export async function saidBy(ghost: string, room: RoomId, person: EncryptingClient) {
  await person.sync();
  const events = (await person.rawEvents(room)).filter(({ sender }) => sender === ghost);
  const all: Sent[] = events.flatMap((event) => {
    const transactionId = transactionIdIn(event.content);
    return transactionId === undefined ? [] : { transactionId, event };
  });
  const messages = events.filter(({ type }) => type === "m.room.message" || type === "m.room.encrypted");
  assert.equal(all.length, messages.length, "every message of a ghost carries its transaction ID");
  const opened = await Promise.all(
    all.map(async ({ transactionId, event }) => ({
      transactionId,
      event,
      read: await person.open(room, event),
    })),
  );
  const isEdit = (event: RoomMessage) =>
    (event.content["m.relates_to"] as { rel_type?: string } | undefined)?.rel_type === "m.replace";
  const of = (purpose: Purpose) =>
    opened.filter(({ transactionId, event }) => isFor(transactionId, purpose) && !isEdit(event));
  const pins = events.filter(({ type }) => type === "m.room.pinned_events");
  return {
    ids: all.map(({ event }) => event.event_id),
    transactionIds: all.map(({ transactionId }) => transactionId),
    types: new Set(messages.map(({ type }) => type)),
    counts: Object.fromEntries(PURPOSES.map((purpose) => [purpose, of(purpose).length])),
    bodies: (purpose: Purpose) => of(purpose).map(({ read }) => String(read.content["body"]).split("\n")[0]),
    pinned: pins.map(({ content }) => content["pinned"]),
    event: (purpose: Purpose) => of(purpose)[0]?.event.event_id as EventId | undefined,
  };
}

/** The lines of the audit file that name an event, parsed. */
export function auditedOf(
  { folder }: Pick<EncryptedBridge, "folder">,
  event: EventId,
): Record<string, unknown>[] {
  const text = readFileSync(join(folder, "audit.jsonl"), "utf8");
  return text
    .split("\n")
    .filter((line) => line.includes(event))
    .map((line) => JSON.parse(line) as Record<string, unknown>);
}

/** In all questions and answers: nothing of it may stay in the bridge. */
export const CANARY = "kittiwake-7q";

/** One question with all that follows it, in a room of its own. */
export class Exchange {
  readonly scene: CrashScene;
  readonly kind: RoomKind;
  readonly room: RoomId;
  /** How many executions and cancellations the agent had before. */
  readonly since: { readonly started: number; readonly canceled: number };
  /** What the agent did for this question, once that is over. */
  journal:
    | { readonly started: readonly string[]; readonly tasks: number; readonly canceled: number }
    | undefined;
  #question: EventId | undefined;

  constructor(scene: CrashScene, kind: RoomKind, room: RoomId) {
    const { started, canceled } = scene.bridge.agent.behaviour;
    this.scene = scene;
    this.kind = kind;
    this.room = room;
    this.since = { started: started.length, canceled: canceled.length };
  }

  get question(): EventId {
    return this.#question ?? assert.fail("nothing was asked");
  }

  /** Asks the agent; in an encrypted room the key may stay behind. */
  async ask(withhold = false): Promise<void> {
    this.#question = await this.#send(questionTo(`${GHOST}: which tea? ${CANARY}`), withhold);
  }

  reply(to: EventId, body: string): Promise<EventId> {
    const relation = { "m.in_reply_to": { event_id: to } };
    return this.#send({ msgtype: "m.text", body, "m.relates_to": relation }, false);
  }

  #send(content: Record<string, unknown>, withhold: boolean): Promise<EventId> {
    const { alice } = this.scene;
    return this.kind === "plain"
      ? alice.sendRaw(this.room, content, "m.room.message")
      : alice.send(this.room, content, { withhold });
  }

  rows<Row = Record<string, unknown>>(sql: string): Promise<Row[]> {
    return this.scene.bridge.rows<Row>(sql, [this.room]);
  }

  /** Waits until the query, with the room as $1, finds a row; a failure says where the question stands. */
  async until(what: string, sql: string): Promise<void> {
    const poll = async () => {
      if ((await this.rows(sql)).length > 0) return true;
      throw new Error(JSON.stringify(await this.#state()));
    };
    await eventually(what, poll, PATIENCE_MS);
  }

  async #state() {
    const delegations = await this.rows(
      "SELECT state, terminal_reason, lease_holder, due_at, a2a_unsettled FROM bridge_delegations WHERE room_id = $1",
    );
    const envelopes = await this.rows(
      "SELECT state, terminal_reason, holder FROM bridge_encrypted_intake WHERE room_id = $1",
    );
    const messages = this.scene.bridge.agent.behaviour.started.slice(this.since.started);
    return { delegations, envelopes, messages };
  }

  /** The agent's question in the room, as the person who asked sees it. */
  askedBack(): Promise<EventId> {
    return eventually(
      "the agent's question is in the room",
      async () => (await saidBy(GHOST, this.room, this.scene.alice)).event("question"),
      PATIENCE_MS,
    );
  }
}

export interface Boundary {
  readonly rooms: readonly RoomKind[];
  readonly plan: Plan;
  /** What happens before the kills are armed. */
  readonly before?: (exchange: Exchange) => Promise<void>;
  /** What brings the bridge to the boundary. */
  readonly act: (exchange: Exchange) => Promise<unknown>;
  /** What happens when the bridge has died so often as it is to. */
  readonly after?: (exchange: Exchange) => Promise<unknown>;
  readonly ends: {
    readonly reason: "answered" | "sender_canceled";
    /** The ghost's messages by their purpose; a status message there may be in each. */
    readonly said: Partial<Record<Purpose, number>>;
    /** Messages that the agent worked on. */
    readonly messages: number;
    /** The status message is there, was pinned once and unpinned once. */
    readonly shown?: boolean;
    /** The question waited in an intake envelope. */
    readonly waited?: boolean;
  };
}

const BOTH: readonly RoomKind[] = ["plain", "encrypted"];
const ANSWER = `green tea ${CANARY}`;
const CHOICE = `a large one ${CANARY}`;
const slow: Plan = { kind: "slow", text: ANSWER };
const inputRequired: Plan = { kind: "input_required", questions: [`Which size? ${CANARY}`] };

const ask = (exchange: Exchange) => exchange.ask();
const release = async ({ scene }: Exchange) => scene.bridge.agent.behaviour.releaseAll();
/** An answer that came before the status message was recorded would leave nothing to look at. */
const releaseOnceShown = async (exchange: Exchange) => {
  await exchange.until(
    "the status message is recorded",
    `SELECT 1 FROM bridge_statuses s JOIN bridge_delegations d ON d.id = s.delegation_id
     WHERE d.room_id = $1 AND s.event_id IS NOT NULL`,
  );
  await release(exchange);
};
const choose = async (exchange: Exchange) => exchange.reply(await exchange.askedBack(), CHOICE);
const cancel = (exchange: Exchange) => exchange.reply(exchange.question, "!cancel");
const askAndWait = async (exchange: Exchange) => {
  await exchange.ask();
  await exchange.until(
    "the agent has accepted",
    "SELECT 1 FROM bridge_delegations WHERE room_id = $1 AND accepted_at IS NOT NULL",
  );
};
const untilAskedBack = async (exchange: Exchange) => {
  await exchange.ask();
  await exchange.until(
    "the agent's question is recorded",
    `SELECT 1 FROM bridge_sends s JOIN bridge_delegations d ON d.id = s.delegation_id
     WHERE d.room_id = $1 AND s.purpose = 'question' AND s.event_id IS NOT NULL AND d.lease_holder IS NULL`,
  );
};
const askWithoutKey = async (exchange: Exchange) => {
  await exchange.ask(true);
  await exchange.until(
    "the question waits for its key",
    "SELECT 1 FROM bridge_encrypted_intake WHERE room_id = $1 AND state = 'awaiting_key'",
  );
};
const giveKey = ({ scene }: Exchange) => scene.alice.release();

const answered = { reason: "answered", said: { reply: 1 }, messages: 1 } as const;
const canceled = { reason: "sender_canceled", said: { notice: 1 }, messages: 1 } as const;
const chosen = { reason: "answered", said: { question: 1, reply: 1 }, messages: 2 } as const;

export const BOUNDARIES: Readonly<Record<FailpointName, Boundary>> = {
  ledger_committed_pre_ack: {
    rooms: BOTH,
    plan: completes(ANSWER),
    act: (exchange) => exchange.ask(exchange.kind === "encrypted"),
    after: giveKey,
    ends: { ...answered, waited: true },
  },
  acknowledged_pre_claim: { rooms: BOTH, plan: completes(ANSWER), act: ask, ends: answered },
  a2a_accepted_pre_record: { rooms: BOTH, plan: slow, act: ask, after: release, ends: answered },
  control_intent_committed_pre_claim: {
    rooms: BOTH,
    plan: slow,
    before: askAndWait,
    act: cancel,
    ends: canceled,
  },
  cancel_accepted_pre_record: { rooms: BOTH, plan: slow, before: askAndWait, act: cancel, ends: canceled },
  continuation_accepted_pre_record: {
    rooms: BOTH,
    plan: inputRequired,
    before: untilAskedBack,
    act: choose,
    ends: chosen,
  },
  question_accepted_pre_record: { rooms: BOTH, plan: inputRequired, act: ask, after: choose, ends: chosen },
  progress_accepted_pre_record: {
    rooms: BOTH,
    plan: slow,
    act: ask,
    after: releaseOnceShown,
    ends: { ...answered, shown: true },
  },
  pin_accepted_pre_record: {
    rooms: BOTH,
    plan: slow,
    act: ask,
    after: releaseOnceShown,
    ends: { ...answered, shown: true },
  },
  result_persisted_pre_matrix: { rooms: BOTH, plan: completes(ANSWER), act: ask, ends: answered },
  matrix_accepted_pre_record: { rooms: BOTH, plan: completes(ANSWER), act: ask, ends: answered },
  long_task_polling: { rooms: BOTH, plan: slow, act: ask, after: release, ends: answered },
  room_key_received_pre_persist: { rooms: ["encrypted"], plan: completes(ANSWER), act: ask, ends: answered },
  decrypted_pre_derivation: {
    rooms: ["encrypted"],
    plan: completes(ANSWER),
    before: askWithoutKey,
    act: giveKey,
    ends: { ...answered, waited: true },
  },
  outbound_megolm_prepared_pre_send: {
    rooms: ["encrypted"],
    plan: completes(ANSWER),
    act: ask,
    ends: answered,
  },
};

/** What the agent answers in the end. */
export const lastWord = ({ plan }: Boundary) => (plan.kind === "input_required" ? CHOICE : ANSWER);
