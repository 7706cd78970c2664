// The fifteen boundaries of a crash as data: in which rooms each exists, what people and the agent do until the bridge comes
// to it, what they do when the bridge is back, and what must have come of it in the end.
// Invariants: a boundary and its failpoint have one name; what is done here goes through the homeserver and the agent alone.
import assert from "node:assert/strict";
import type { EventId, RoomId } from "../../src/domain/identifiers.ts";
import { type CrashScene, PATIENCE_MS, type Purpose, type RoomKind, saidBy } from "./crash-scene.ts";
import { eventually, GHOST, questionTo } from "./encrypted-bridge.ts";
import type { FailpointName } from "./failpoints.ts";
import { completes, type Plan } from "./fault-agent-behaviour.ts";

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
    const look = async () => {
      if ((await this.rows(sql)).length > 0) return true;
      throw new Error(JSON.stringify(await this.#state()));
    };
    await eventually(what, look, PATIENCE_MS);
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
const asks: Plan = { kind: "asks", questions: [`Which size? ${CANARY}`] };

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
    "the agent's task is recorded",
    "SELECT 1 FROM bridge_delegations WHERE room_id = $1 AND a2a_task_id IS NOT NULL",
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
    plan: asks,
    before: untilAskedBack,
    act: choose,
    ends: chosen,
  },
  question_accepted_pre_record: { rooms: BOTH, plan: asks, act: ask, after: choose, ends: chosen },
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
export const lastWord = ({ plan }: Boundary) => (plan.kind === "asks" ? CHOICE : ANSWER);
