// Asks an agent as a person does, by mentioning its ghost in a shared room, and watches from both sides.
// Invariant: every time in the result was observed on one machine, by this client, in an event, in the bridge's audit
// file or in the gateway's access log, so that they can be compared.
import { DrawbridgeError } from "../../src/domain/errors.ts";
import type { EventId, GhostMxid, RoomId } from "../../src/domain/identifiers.ts";
import { withEncryptingUsers } from "../encrypting-user/both.ts";
import { ghostFor } from "../endpoints.ts";
import { type Lab, SOURCES } from "../lab.ts";
import type { MatrixUser, RoomEvent } from "../matrix-user.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation, clientIds, TRAITS } from "../organisations.ts";
import { personOf, requireRoom, type Seed, type SeededRoom } from "../seed/seed-file.ts";
import { type AccessLogLine, type DelegationRecord, findInvocation, findRecord, tailOf } from "./logs.ts";

export interface AskRequest {
  readonly lab: Lab;
  readonly seed: Seed;
  /** The organisation whose first user asks, by a ghost of its own bridge. */
  readonly from: CompleteOrganisation;
  /** The organisation whose agent is asked; `from` where an added one is. */
  readonly publisher: CompleteOrganisation;
  /** The ghost of an agent that fed:agent has added: no gateway of the lab is on the way to it. */
  readonly addedGhost?: GhostMxid;
  /** The publisher's shared room when absent. */
  readonly room?: SeededRoom;
  /** A question that the agent can answer when absent. */
  readonly question?: string;
  /** 60 s when absent. */
  readonly timeoutMs?: number;
}

export interface RoomView {
  /** The answer in this organisation's copy of the room; null if it never arrived. */
  readonly text: string | null;
  readonly eventIds: readonly string[];
  /** Whether all of it came encrypted, and this organisation's client opened it. */
  readonly encrypted: boolean;
  /** When this organisation's homeserver showed the question, and all of the answer, to its user. */
  readonly questionArrivedAt: number | null;
  readonly answerArrivedAt: number | null;
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

const TIMEOUT_MS = 60_000;
const { clock } = SOURCES;

/** A person's client in a room. */
type Client = Pick<MatrixUser, "userId" | "send" | "sync">;
type Clients = Readonly<Record<CompleteOrganisation, Client>>;

/**
 * Asks and waits until both organisations see the answer or the notice. In an encrypted room both have clients that
 * encrypt.
 * @throws DrawbridgeError `agent_unavailable` when there is no outcome in time
 */
export async function ask(request: AskRequest): Promise<AskResult> {
  const { lab, seed, from, publisher } = request;
  const room = request.room ?? requireRoom(seed, publisher);
  const work = (clients: Clients) => askAs(clients, room, request);
  if (room.encrypted) return await withEncryptingUsers(lab, seed, from, SOURCES, work);
  return await work({ "org-a": personOf(lab, seed, "org-a"), "org-b": personOf(lab, seed, "org-b") });
}

async function askAs(clients: Clients, room: SeededRoom, request: AskRequest): Promise<AskResult> {
  const { lab, from, publisher, timeoutMs = TIMEOUT_MS } = request;
  const question = request.question ?? TRAITS[publisher].sampleQuestion;
  const ghost = request.addedGhost ?? ghostFor(lab, from, publisher);
  const roomId = room.roomId as RoomId;
  const asker = clients[from];
  const watchers = await Promise.all(
    COMPLETE_ORGANISATIONS.map(async (organisation) => {
      const watcher = new Watcher(clients[organisation], roomId, ghost);
      await watcher.begin();
      return [organisation, watcher] as const;
    }),
  );
  const audit = tailOf(lab.paths.organisation(from).auditFile);
  const accessLog = tailOf(lab.paths.organisation(publisher).accessLog);

  const sentAt = clock.now();
  const deadline = sentAt + timeoutMs;
  const questionEventId = await asker.send(roomId, {
    msgtype: "m.text",
    body: `${ghost}: ${question}`,
    "m.mentions": { user_ids: [ghost] },
  });
  const sendAnsweredAt = clock.now();
  const outcome = findRecord(audit, questionEventId, ghost, clock, deadline).then((record) => {
    if (record !== undefined) return record;
    throw new DrawbridgeError(
      "agent_unavailable",
      `${ghost} has not answered within ${timeoutMs / 1_000} s`,
      { hint: `See ./task fed:logs ${from} bridge and ./task fed:status.` },
    );
  });
  const views = await Promise.all(
    watchers.map(async ([organisation, watcher]) => [
      organisation,
      await watcher.watch(questionEventId, outcome, deadline),
    ]),
  );
  const record = await outcome;
  const answer = watchers.find(([organisation]) => organisation === from)?.[1].answer;
  const isCaller = (azp: string) => clientIds.isBridgeOf(from, azp);
  return {
    ...{ asker: asker.userId, ghost, room, question, questionEventId, sentAt, sendAnsweredAt },
    views: Object.fromEntries(views),
    audit: record,
    answeredAt: answer?.at(-1)?.origin_server_ts ?? null,
    gateway:
      request.addedGhost === undefined ? await findInvocation(accessLog, record, isCaller, clock) : null,
  };
}

/** One organisation's view of the room, read as its first user. */
class Watcher {
  readonly answer: RoomEvent[] = [];
  readonly #user: Client;
  readonly #roomId: RoomId;
  readonly #ghost: GhostMxid;
  #position: string | undefined;

  constructor(user: Client, roomId: RoomId, ghost: GhostMxid) {
    this.#user = user;
    this.#roomId = roomId;
    this.#ghost = ghost;
  }

  async begin(): Promise<void> {
    this.#position = (await this.#user.sync(this.#roomId, undefined, 0)).next;
  }

  async watch(
    questionEventId: EventId,
    outcome: Promise<DelegationRecord>,
    deadline: number,
  ): Promise<RoomView> {
    let questionArrivedAt: number | null = null;
    let record: DelegationRecord | undefined;
    let endAt = deadline;
    outcome.then(
      (known) => {
        record = known;
        const waitMs = known.reply_event_id === null ? NOTICE_WAIT_MS : VIEW_WAIT_MS;
        endAt = Math.min(deadline, clock.now() + waitMs);
      },
      () => undefined,
    );
    while (clock.now() < endAt) {
      const { next, events } = await this.#user.sync(this.#roomId, this.#position, SYNC_WAIT_MS);
      this.#position = next;
      for (const event of events) {
        if (event.event_id === questionEventId) questionArrivedAt = clock.now();
        if (this.#answers(event, questionEventId)) this.answer.push(event);
      }
      const last = record?.reply_event_id ?? undefined;
      if (this.answer.some((event) => event.event_id === last)) break;
      // The answer may be here before the record that names it.
      if (record === undefined && this.answer.length > 0) record = await outcome.catch(() => undefined);
      if (this.answer.some((event) => event.event_id === record?.reply_event_id)) break;
    }
    // A status message, or a question back, may have come before it. Where there is no answer, a notice says why.
    const texts = this.answer.filter(({ content }) => content["msgtype"] !== "m.notice");
    const answer = texts.length > 0 ? texts : this.answer;
    return {
      text: answer.length === 0 ? null : answer.map(({ content }) => String(content["body"])).join(""),
      eventIds: answer.map((event) => event.event_id),
      encrypted: answer.length > 0 && answer.every((event) => event.encrypted === true),
      questionArrivedAt,
      answerArrivedAt: answer.length === 0 ? null : clock.now(),
    };
  }

  #answers(event: RoomEvent, questionEventId: EventId): boolean {
    if (event.sender !== this.#ghost || event.type !== "m.room.message") return false;
    const relation = event.content["m.relates_to"] as
      | { event_id?: string; "m.in_reply_to"?: { event_id?: string } }
      | undefined;
    return (
      relation?.["m.in_reply_to"]?.event_id === questionEventId || relation?.event_id === questionEventId
    );
  }
}
