// People who are not concerned by a containment or a removal, and go on writing to each other: those of an
// organisation and the neutral witness, or two colleagues where no witness runs. A removal restarts homeservers:
// every message is sent until the homeserver has accepted it, and polled for until the other person sees it, so that a
// restart may delay a message and never lose one. Invariant: nothing but times is kept.
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { parseEventId, type RoomId } from "../../src/domain/identifiers.ts";
import { type Lab, pollFor, SOURCES } from "../lab.ts";
import { type MatrixUser, roomPath } from "../matrix-user.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation, USERS, WITNESS } from "../organisations.ts";
import { peopleOf, personOf, type Seed } from "../seed/seed-file.ts";
import type { AttemptFinding, WatchedAttempt } from "./attempt-watch.ts";

const { clock, random } = SOURCES;
const NOTICE = { msgtype: "m.notice", body: "Between the two of us" };

/** The name for the other side where no witness runs. */
export const THEMSELVES = "themselves";

/** Milliseconds since the Unix epoch. */
interface Message {
  readonly sentAt: number;
  /** Null for one that never arrived. */
  readonly arrivedAt: number | null;
}

export interface BystanderSummary {
  readonly organisation: CompleteOrganisation;
  /** The other side: the witness, or `THEMSELVES`. */
  readonly with: string;
  readonly messages: number;
  readonly lost: number;
  /** The longest time from writing to seeing, and the median. */
  readonly longestMs: number;
  readonly medianMs: number;
}

const PAUSE_MS = 600;
/** A writer who does not see a message arrive writes the next one after this, up to so many at once. */
const NEXT_MESSAGE_MS = 2_000;
const IN_FLIGHT_MAX = 4;
const POLL_MS = 100;
const RETRY_MS = 250;
const REQUEST_MS = 3_000;
/**
 * Longer than Synapse leaves a room alone that it was working on when it was stopped: its lock on the room ends
 * after two minutes, and is checked once a minute.
 */
const ARRIVES_WITHIN_MS = 240_000;

interface Stream {
  readonly organisation: CompleteOrganisation;
  readonly room: RoomId;
  readonly from: MatrixUser;
  readonly to: MatrixUser;
  readonly messages: Message[];
}

/** Messages of the bystanders of both organisations while one is removed. */
export class BystanderTraffic {
  readonly #other: string;
  readonly #streams: readonly Stream[];
  readonly #stop = new AbortController();
  #running: Promise<unknown> = Promise.resolve();

  private constructor(other: string, streams: readonly Stream[]) {
    this.#other = other;
    this.#streams = streams;
  }

  /** Opens the rooms that are missing. @throws DrawbridgeError `homeserver_refused` */
  static async open(lab: Lab, seed: Seed): Promise<BystanderTraffic> {
    const hasWitness = lab.organisations.includes(WITNESS);
    const streams: Stream[] = [];
    for (const organisation of COMPLETE_ORGANISATIONS) {
      const [own, colleague] = peopleOf(lab, seed, organisation);
      const other = hasWitness ? personOf(lab, seed, WITNESS) : colleague;
      if (own === undefined || other === undefined) {
        throw new TypeError(`${organisation} has no ${USERS[1].localpart}`);
      }
      const room = await commonRoom(lab, organisation, "neighbours", own, other);
      streams.push({ organisation, room, from: own, to: other, messages: [] });
      streams.push({ organisation, room, from: other, to: own, messages: [] });
    }
    return new BystanderTraffic(hasWitness ? WITNESS : THEMSELVES, streams);
  }

  start(): void {
    this.#running = Promise.all(this.#streams.map((stream) => this.#keepWriting(stream)));
  }

  /** Ends, and waits for the messages that have not arrived yet. */
  async stop(): Promise<readonly BystanderSummary[]> {
    this.#stop.abort();
    await this.#running;
    return COMPLETE_ORGANISATIONS.map((organisation) => {
      const all = this.#of(organisation);
      const took = all
        .flatMap(({ sentAt, arrivedAt }) => (arrivedAt === null ? [] : [arrivedAt - sentAt]))
        .sort((one, other) => one - other);
      return {
        organisation,
        with: this.#other,
        messages: all.length,
        lost: all.length - took.length,
        longestMs: took.at(-1) ?? 0,
        medianMs: took[Math.floor(took.length / 2)] ?? 0,
      };
    });
  }

  /** The longest time that a message of an organisation's bystanders took within a period. */
  longestWithin(organisation: CompleteOrganisation, from: number, until: number): number {
    const within = this.#of(organisation).filter(
      ({ sentAt, arrivedAt }) => sentAt <= until && (arrivedAt === null || arrivedAt >= from),
    );
    return Math.max(0, ...within.map(({ sentAt, arrivedAt }) => (arrivedAt ?? until) - sentAt));
  }

  #of(organisation: CompleteOrganisation): readonly Message[] {
    return this.#streams.flatMap((stream) => (stream.organisation === organisation ? stream.messages : []));
  }

  /**
   * Several messages are in flight at a time, and further ones are sent until the last has arrived: Synapse processes
   * what it had accepted before a restart together with the next event that it receives.
   */
  async #keepWriting(stream: Stream): Promise<void> {
    const inFlight = new Set<Promise<void>>();
    while (!this.#stop.signal.aborted) {
      if (inFlight.size < IN_FLIGHT_MAX) {
        const arrival = sendAndSee(stream).then((message) => {
          stream.messages.push(message);
          inFlight.delete(arrival);
        });
        inFlight.add(arrival);
        await within(NEXT_MESSAGE_MS, arrival);
      } else await within(NEXT_MESSAGE_MS, Promise.race(inFlight));
      await clock.sleep(PAUSE_MS, this.#stop.signal).catch(() => undefined);
    }
    const all = Promise.all(inFlight);
    await within(NEXT_MESSAGE_MS, all);
    while (inFlight.size > 0) {
      await send(stream, newTransaction());
      await within(NEXT_MESSAGE_MS, all);
    }
  }
}

/** Waits for something, not longer than that. */
async function within(ms: number, awaited: Promise<unknown>): Promise<void> {
  const over = new AbortController();
  await Promise.race([awaited, clock.sleep(ms, over.signal).catch(() => undefined)]);
  over.abort();
}

function newTransaction(): string {
  return random.bytes(12).toString("hex");
}

/** Undefined where the homeserver did not answer that it has taken the message: it may be restarting. */
async function send({ room, from }: Stream, transaction: string): Promise<string | undefined> {
  const path = roomPath(room, "send/m.room.message", transaction);
  const answer = await from.request("PUT", path, NOTICE, REQUEST_MS).catch(() => undefined);
  return parseEventId(answer?.body["event_id"]);
}

async function sendAndSee(stream: Stream): Promise<Message> {
  const sentAt = clock.now();
  const transaction = newTransaction();
  let event: string | undefined;
  for (const deadline = sentAt + ARRIVES_WITHIN_MS; clock.now() < deadline; ) {
    if (event === undefined) {
      event = await send(stream, transaction);
      if (event === undefined) await clock.sleep(RETRY_MS);
      continue;
    }
    if (await stream.to.sees(stream.room, event, REQUEST_MS).catch(() => false)) {
      return { sentAt, arrivedAt: clock.now() };
    }
    await clock.sleep(POLL_MS);
  }
  return { sentAt, arrivedAt: null };
}

/** Messages between a contained partner and the witness, both ways; none where no witness runs. */
export async function bystanderMessages(
  lab: Lab,
  seed: Seed,
  partner: CompleteOrganisation,
): Promise<readonly WatchedAttempt[]> {
  if (!lab.organisations.includes(WITNESS)) return [];
  const [ofPartner, ofWitness] = [personOf(lab, seed, partner), personOf(lab, seed, WITNESS)];
  const room = await commonRoom(lab, partner, "bystanders", ofPartner, ofWitness);
  const messages = (kind: string, from: MatrixUser, to: MatrixUser): WatchedAttempt => ({
    kind,
    plane: null,
    pauseMs: 500,
    attempt: async (): Promise<AttemptFinding> => {
      const event = await from.send(room, NOTICE);
      const times = { timeoutMs: 5_000, everyMs: 50 };
      const arrived = await pollFor(async () => (await to.sees(room, event)) || undefined, times);
      const found = { layer: "homeserver", status: 200 } as const;
      return arrived
        ? { ...found, verdict: "open", reason: "arrived" }
        : { ...found, verdict: "unknown", reason: "not_arrived" };
    },
  });
  return [
    messages(`message to ${WITNESS}`, ofPartner, ofWitness),
    messages(`message from ${WITNESS}`, ofWitness, ofPartner),
  ];
}

/** A room that these two people have joined and nobody else has. */
async function commonRoom(
  lab: Lab,
  organisation: CompleteOrganisation,
  aliasLocalpart: string,
  own: MatrixUser,
  other: MatrixUser,
): Promise<RoomId> {
  const server = lab.serverNames[organisation];
  const alias = `#${aliasLocalpart}:${server}`;
  const room =
    (await own.roomAt(alias)) ??
    (await own.createRoom({
      ...{ preset: "private_chat", room_alias_name: aliasLocalpart, invite: [other.userId] },
    }));
  const { status, body } = await other.join(room, [server]);
  if (status === 200) return room;
  throw new DrawbridgeError(
    "homeserver_refused",
    `${other.userId} cannot join ${alias}: ${status} ${String(body["errcode"])}`,
    { hint: "See ./task fed:status: is a link cut?" },
  );
}
