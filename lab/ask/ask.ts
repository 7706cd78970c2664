// Asks an agent as a person does, by mentioning its ghost in a shared room, and watches from both sides.
// Every time in the result was observed: by this client, in an event, in the bridge's audit file or in the
// gateway's access log. All of them are read on one machine, so they can be compared.
import type { Clock, Random } from "../../src/domain/clock.ts";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import type { EventId, GhostMxid, RoomId } from "../../src/domain/identifiers.ts";
import { withEncryptingUsers } from "../encrypting-user/both.ts";
import type { Lab } from "../lab.ts";
import type { MatrixUser, RoomEvent } from "../matrix-user.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation, clientIds } from "../organisations.ts";
import { personOf, type Seed, type SeededRoom } from "../seed/seed.ts";
import { type AccessLogLine, type DelegationRecord, findInvocation, findRecord, tailOf } from "./logs.ts";

export interface AskRequest {
  readonly lab: Lab;
  readonly seed: Seed;
  /** Whose first user asks. */
  readonly from: CompleteOrganisation;
  readonly ghost: GhostMxid;
  /** Whose bridge the ghost belongs to. */
  readonly bridgeOf: CompleteOrganisation;
  /** Whose agent it stands for. */
  readonly publisher: CompleteOrganisation;
  readonly room: SeededRoom;
  readonly question: string;
  readonly timeoutMs: number;
}

export interface RoomView {
  /** The answer as it stands in this organisation's copy of the room; null if it never came. */
  readonly text: string | null;
  readonly eventIds: readonly string[];
  /** Whether all of it came encrypted, and this organisation's client opened it. */
  readonly encrypted: boolean;
  /** When this organisation's homeserver showed the question, and all of the answer, to its user. */
  readonly questionSeenAt: number | null;
  readonly answerSeenAt: number | null;
}

export interface AskResult {
  readonly asker: string;
  readonly ghost: string;
  readonly room: SeededRoom;
  readonly question: string;
  readonly questionEventId: string;
  readonly sentAt: number;
  /** When the homeserver had taken the question. */
  readonly sendAnsweredAt: number;
  readonly views: Readonly<Record<CompleteOrganisation, RoomView>>;
  readonly audit: DelegationRecord;
  /** When the homeserver took the answer, by its own clock; null without one. */
  readonly answeredAt: number | null;
  readonly gateway: AccessLogLine | null;
}

const SYNC_WAIT_MS = 1_000;
/** When the answer is sent, it must only cross the federation link; that may be cut. */
const VIEW_WAIT_MS = 20_000;
/** Without an answer a notice may still come. */
const NOTICE_WAIT_MS = 3_000;

export interface AskSources {
  readonly clock: Clock;
  readonly random: Random;
}

/** Somebody's client in a room. */
type Client = Pick<MatrixUser, "userId" | "send" | "sync">;
type Clients = Readonly<Record<CompleteOrganisation, Client>>;

/**
 * Asks and waits until both organisations see what came of it. In an encrypted room both have clients that
 * encrypt.
 * @throws DrawbridgeError `agent_unavailable` when nothing came of it in time
 */
export async function ask(request: AskRequest, sources: AskSources): Promise<AskResult> {
  const { lab, seed } = request;
  if (request.room.encrypted) {
    return await withEncryptingUsers(lab, seed, request.from, sources, (clients) =>
      askAs(clients, request, sources),
    );
  }
  const person = (name: CompleteOrganisation) => personOf(lab, seed, name, sources);
  return await askAs({ "org-a": person("org-a"), "org-b": person("org-b") }, request, sources);
}

async function askAs(clients: Clients, request: AskRequest, sources: AskSources): Promise<AskResult> {
  const { clock } = sources;
  const { lab, room } = request;
  const roomId = room.roomId as RoomId;
  const asker = clients[request.from];
  const watchers = await Promise.all(
    COMPLETE_ORGANISATIONS.map(async (organisation) => {
      const watcher = new Watcher(clients[organisation], roomId, request, clock);
      await watcher.begin();
      return [organisation, watcher] as const;
    }),
  );
  const audit = tailOf(lab.paths.organisation(request.bridgeOf).auditFile);
  const accessLog = tailOf(lab.paths.organisation(request.publisher).accessLog);

  const sentAt = clock.now();
  const deadline = sentAt + request.timeoutMs;
  const questionEventId = await asker.send(roomId, {
    msgtype: "m.text",
    body: `${request.ghost}: ${request.question}`,
    "m.mentions": { user_ids: [request.ghost] },
  });
  const sendAnsweredAt = clock.now();
  const outcome = findRecord(audit, questionEventId, request.ghost, clock, deadline).then((record) => {
    if (record === undefined) throw noAnswer(request);
    return record;
  });
  const views = await Promise.all(
    watchers.map(async ([organisation, watcher]) => [
      organisation,
      await watcher.watch(questionEventId, outcome, deadline),
    ]),
  );
  const record = await outcome;
  const answer = watchers.find(([organisation]) => organisation === request.bridgeOf)?.[1].answer;
  return {
    asker: asker.userId,
    ghost: request.ghost,
    room,
    question: request.question,
    questionEventId,
    sentAt,
    sendAnsweredAt,
    views: Object.fromEntries(views),
    audit: record,
    answeredAt: answer?.at(-1)?.origin_server_ts ?? null,
    gateway: await findInvocation(
      accessLog,
      record,
      (azp) => clientIds.isBridgeOf(request.bridgeOf, azp),
      clock,
    ),
  };
}

function noAnswer(request: AskRequest): DrawbridgeError {
  return new DrawbridgeError(
    "agent_unavailable",
    `${request.ghost} has not answered within ${request.timeoutMs / 1_000} s`,
    { hint: `See ./task fed:logs ${request.bridgeOf} bridge and ./task fed:status.` },
  );
}

/** One organisation's view of the room, read as its first user. */
class Watcher {
  readonly answer: RoomEvent[] = [];
  readonly #user: Client;
  readonly #roomId: RoomId;
  readonly #request: AskRequest;
  readonly #clock: Clock;
  #position: string | undefined;

  constructor(user: Client, roomId: RoomId, request: AskRequest, clock: Clock) {
    this.#user = user;
    this.#roomId = roomId;
    this.#request = request;
    this.#clock = clock;
  }

  async begin(): Promise<void> {
    this.#position = (await this.#user.sync(this.#roomId, undefined, 0)).next;
  }

  async watch(
    questionEventId: EventId,
    outcome: Promise<DelegationRecord>,
    deadline: number,
  ): Promise<RoomView> {
    let questionSeenAt: number | null = null;
    let record: DelegationRecord | undefined;
    let endAt = deadline;
    outcome.then(
      (known) => {
        record = known;
        const waitMs = known.reply_event_id === null ? NOTICE_WAIT_MS : VIEW_WAIT_MS;
        endAt = Math.min(deadline, this.#clock.now() + waitMs);
      },
      () => undefined,
    );
    while (this.#clock.now() < endAt) {
      const { next, events } = await this.#user.sync(this.#roomId, this.#position, SYNC_WAIT_MS);
      this.#position = next;
      for (const event of events) {
        if (event.event_id === questionEventId) questionSeenAt = this.#clock.now();
        if (this.#answers(event, questionEventId)) this.answer.push(event);
      }
      const last = record?.reply_event_id ?? undefined;
      if (this.answer.some((event) => event.event_id === last)) break;
      // The answer may be here before the record that names it.
      if (record === undefined && this.answer.length > 0) record = await outcome.catch(() => undefined);
      if (this.answer.some((event) => event.event_id === record?.reply_event_id)) break;
    }
    return {
      text:
        this.answer.length === 0 ? null : this.answer.map((event) => String(event.content["body"])).join(""),
      eventIds: this.answer.map((event) => event.event_id),
      encrypted: this.answer.length > 0 && this.answer.every((event) => event.encrypted === true),
      questionSeenAt,
      answerSeenAt: this.answer.length === 0 ? null : this.#clock.now(),
    };
  }

  #answers(event: RoomEvent, questionEventId: EventId): boolean {
    if (event.sender !== this.#request.ghost || event.type !== "m.room.message") return false;
    const relation = event.content["m.relates_to"] as
      | { event_id?: string; "m.in_reply_to"?: { event_id?: string } }
      | undefined;
    return (
      relation?.["m.in_reply_to"]?.event_id === questionEventId || relation?.event_id === questionEventId
    );
  }
}
