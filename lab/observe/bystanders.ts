// Who has nothing to do with a removal: people of each organisation who write to the neutral witness, and are
// written to by it, in a room of theirs; where no witness runs, to a colleague. Every message is sent until the
// homeserver has taken it, and looked for until the other one sees it: a restart delays, and may lose nothing.
// Invariants: nothing but times is kept; they go on writing while one is on its way, as people do, and until
// the last has come, for Synapse takes up what it had accepted before a restart with the next thing it is sent.
import type { Clock, Random } from "../../src/domain/clock.ts";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { parseEventId, parseRoomId, parseUserId, type RoomId } from "../../src/domain/identifiers.ts";
import { homeserverEndpoints } from "../endpoints.ts";
import type { Lab } from "../lab.ts";
import { MatrixUser } from "../matrix-user.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation, USERS, WITNESS } from "../organisations.ts";
import { personOf, type Seed } from "../seed/seed.ts";
import type { AttemptFinding, WatchedAttempt } from "./attempt-watch.ts";

/** Whom they talk with where no witness runs. */
export const THEMSELVES = "themselves";

/** Milliseconds since the Unix epoch. */
export interface Crossing {
  readonly sentAt: number;
  /** Null for one that never came. */
  readonly seenAt: number | null;
}

export interface Neighbours {
  readonly organisation: CompleteOrganisation;
  /** Whom its people talk with: the witness, or themselves. */
  readonly with: string;
  readonly messages: number;
  readonly lost: number;
  /** Longest time from writing to seeing; and half of them took no longer than the median. */
  readonly longestMs: number;
  readonly medianMs: number;
}

const ALIAS = "neighbours";
const PAUSE_MS = 600;
/** Who does not see that a message has come writes the next one after this, up to so many. */
const PATIENCE_MS = 2_000;
const UNDER_WAY_MAX = 4;
const POLL_MS = 100;
const RETRY_MS = 250;
const REQUEST_MS = 3_000;
/**
 * Longer than Synapse leaves a room alone in which it was at work when it was stopped: what it locked is free
 * again after two minutes, and is looked for once a minute.
 */
const SEEN_WITHIN_MS = 240_000;

interface Sources {
  readonly clock: Clock;
  readonly random: Random;
}

interface Stream {
  readonly organisation: CompleteOrganisation;
  readonly room: RoomId;
  readonly from: MatrixUser;
  readonly to: MatrixUser;
  readonly crossings: Crossing[];
}

export class NeighbourTraffic {
  readonly #lab: Lab;
  readonly #sources: Sources;
  readonly #streams: readonly Stream[];
  readonly #stop = new AbortController();
  #running: Promise<unknown> = Promise.resolve();

  private constructor(lab: Lab, streams: readonly Stream[], sources: Sources) {
    this.#lab = lab;
    this.#streams = streams;
    this.#sources = sources;
  }

  /** Opens the rooms that are missing. @throws DrawbridgeError `homeserver_refused` */
  static async open(lab: Lab, seed: Seed, sources: Sources): Promise<NeighbourTraffic> {
    const streams: Stream[] = [];
    for (const organisation of COMPLETE_ORGANISATIONS) {
      const own = personOf(lab, seed, organisation, sources);
      const other = lab.organisations.includes(WITNESS)
        ? personOf(lab, seed, WITNESS, sources)
        : colleague(lab, seed, organisation, sources);
      const room = await roomOf(lab, organisation, own, other);
      const stream = (from: MatrixUser, to: MatrixUser) =>
        streams.push({ organisation, room, from, to, crossings: [] });
      stream(own, other);
      stream(other, own);
    }
    return new NeighbourTraffic(lab, streams, sources);
  }

  start(): void {
    this.#running = Promise.all(this.#streams.map((stream) => this.#keepWriting(stream)));
  }

  /** Ends, and waits for what is still on its way. */
  async stop(): Promise<readonly Neighbours[]> {
    this.#stop.abort();
    await this.#running;
    return COMPLETE_ORGANISATIONS.map((organisation) => {
      const all = this.#of(organisation);
      const took = all
        .flatMap(({ sentAt, seenAt }) => (seenAt === null ? [] : [seenAt - sentAt]))
        .sort(byNumber);
      return {
        organisation,
        with: this.#lab.organisations.includes(WITNESS) ? WITNESS : THEMSELVES,
        messages: all.length,
        lost: all.length - took.length,
        longestMs: took.at(-1) ?? 0,
        medianMs: took[Math.floor(took.length / 2)] ?? 0,
      };
    });
  }

  /** The longest that a message of the organisation's neighbours was on its way within a time. */
  longestWithin(organisation: CompleteOrganisation, from: number, until: number): number {
    const within = this.#of(organisation).filter(
      ({ sentAt, seenAt }) => sentAt <= until && (seenAt === null || seenAt >= from),
    );
    return Math.max(0, ...within.map(({ sentAt, seenAt }) => (seenAt ?? until) - sentAt));
  }

  #of(organisation: CompleteOrganisation): readonly Crossing[] {
    return this.#streams.flatMap((stream) => (stream.organisation === organisation ? stream.crossings : []));
  }

  async #keepWriting(stream: Stream): Promise<void> {
    const { clock } = this.#sources;
    const underWay = new Set<Promise<void>>();
    while (!this.#stop.signal.aborted) {
      if (underWay.size < UNDER_WAY_MAX) {
        const crossing = this.#cross(stream).then((crossed) => {
          stream.crossings.push(crossed);
          underWay.delete(crossing);
        });
        underWay.add(crossing);
        await this.#within(PATIENCE_MS, crossing);
      } else await this.#within(PATIENCE_MS, Promise.race(underWay));
      await clock.sleep(PAUSE_MS, this.#stop.signal).catch(() => undefined);
    }
    const all = Promise.all(underWay);
    await this.#within(PATIENCE_MS, all);
    while (underWay.size > 0) {
      await this.#send(stream, this.#transaction());
      await this.#within(PATIENCE_MS, all);
    }
  }

  /** Waits for something, not longer than that. */
  async #within(ms: number, awaited: Promise<unknown>): Promise<void> {
    const over = new AbortController();
    await Promise.race([awaited, this.#sources.clock.sleep(ms, over.signal).catch(() => undefined)]);
    over.abort();
  }

  #transaction(): string {
    return this.#sources.random.bytes(12).toString("hex");
  }

  /** Undefined where the homeserver did not say that it has taken it. */
  async #send({ room, from }: Stream, transaction: string): Promise<string | undefined> {
    const body = { msgtype: "m.notice", body: "Between the two of us" };
    const path = `/rooms/${encodeURIComponent(room)}/send/m.room.message/${transaction}`;
    const answer = await quietly(from.request("PUT", path, body, REQUEST_MS));
    return parseEventId(answer?.body["event_id"]);
  }

  async #cross(stream: Stream): Promise<Crossing> {
    const { clock } = this.#sources;
    const sentAt = clock.now();
    const transaction = this.#transaction();
    let event: string | undefined;
    for (const deadline = sentAt + SEEN_WITHIN_MS; clock.now() < deadline; ) {
      if (event === undefined) {
        event = await this.#send(stream, transaction);
        if (event === undefined) await clock.sleep(RETRY_MS);
        continue;
      }
      const path = `/rooms/${encodeURIComponent(stream.room)}/event/${encodeURIComponent(event)}`;
      const seen = await quietly(stream.to.request("GET", path, undefined, REQUEST_MS));
      if (seen?.status === 200) return { sentAt, seenAt: clock.now() };
      await clock.sleep(POLL_MS);
    }
    return { sentAt, seenAt: null };
  }
}

/** Undefined where nobody answered: a homeserver that restarts. */
function quietly<T>(request: Promise<T>): Promise<T | undefined> {
  return request.catch(() => undefined);
}

function byNumber(one: number, other: number): number {
  return one - other;
}

function colleague(lab: Lab, seed: Seed, organisation: CompleteOrganisation, sources: Sources): MatrixUser {
  const [, second] = seed.users[organisation];
  const userId = parseUserId(second?.userId);
  if (second === undefined || userId === undefined) {
    throw new TypeError(`${organisation} has no ${USERS[1].localpart}`);
  }
  return new MatrixUser(
    homeserverEndpoints(lab, organisation).clientUrl,
    userId,
    second.accessToken,
    sources,
  );
}

/** A room that these two have joined. */
async function roomOf(
  lab: Lab,
  organisation: CompleteOrganisation,
  own: MatrixUser,
  other: MatrixUser,
): Promise<RoomId> {
  const server = lab.serverNames[organisation];
  const alias = `#${ALIAS}:${server}`;
  const known = await own.request("GET", `/directory/room/${encodeURIComponent(alias)}`);
  const room =
    (known.status === 200 ? parseRoomId(known.body["room_id"]) : undefined) ??
    (await own.createRoom({
      ...{ preset: "private_chat", room_alias_name: ALIAS, invite: [other.userId] },
    }));
  const { status, body } = await other.join(room, [server]);
  if (status === 200) return room;
  throw new DrawbridgeError(
    "homeserver_refused",
    `${other.userId} cannot join ${alias}: ${status} ${String(body["errcode"])}`,
    { hint: "See ./task fed:status: is a link cut?" },
  );
}

// Who has nothing to do with it: the partner and the neutral witness go on talking, in a room of their own,
// while a third organisation breaks the glass on the partner.

const ALIAS_LOCALPART = "bystanders";
const BYSTANDER_PAUSE_MS = 500;
const ARRIVAL_MS = 5_000;
const ARRIVAL_POLL_MS = 50;

interface Sources {
  readonly clock: Clock;
  readonly random: Random;
}

/** Messages between the partner and the witness, both ways; none where no witness runs. */
export async function bystanderMessages(
  lab: Lab,
  seed: Seed,
  partner: CompleteOrganisation,
  sources: Sources,
): Promise<readonly WatchedAttempt[]> {
  if (!lab.organisations.includes(WITNESS)) return [];
  const ofPartner = personOf(lab, seed, partner, sources);
  const ofWitness = personOf(lab, seed, WITNESS, sources);
  const room = await commonRoom(lab, partner, ofPartner, ofWitness);
  const messages = (kind: string, from: MatrixUser, to: MatrixUser): WatchedAttempt => ({
    kind,
    plane: null,
    pauseMs: BYSTANDER_PAUSE_MS,
    attempt: () => cross(room, from, to, sources.clock),
  });
  return [
    messages(`message to ${WITNESS}`, ofPartner, ofWitness),
    messages(`message from ${WITNESS}`, ofWitness, ofPartner),
  ];
}

/** A room that these two have joined, and nobody else ever has. */
async function commonRoom(
  lab: Lab,
  partner: CompleteOrganisation,
  ofPartner: MatrixUser,
  ofWitness: MatrixUser,
): Promise<RoomId> {
  const alias = `#${ALIAS_LOCALPART}:${lab.serverNames[partner]}`;
  const known = await ofPartner.request("GET", `/directory/room/${encodeURIComponent(alias)}`);
  const room =
    (known.status === 200 ? parseRoomId(known.body["room_id"]) : undefined) ??
    (await ofPartner.createRoom({
      preset: "private_chat",
      room_alias_name: ALIAS_LOCALPART,
      invite: [ofWitness.userId],
    }));
  const { status, body } = await ofWitness.join(room, [lab.serverNames[partner]]);
  if (status === 200) return room;
  throw new DrawbridgeError(
    "homeserver_refused",
    `${ofWitness.userId} cannot join ${alias}: ${status} ${String(body["errcode"])}`,
    { hint: "See ./task fed:status: is a link cut?" },
  );
}

async function cross(room: RoomId, from: MatrixUser, to: MatrixUser, clock: Clock): Promise<AttemptFinding> {
  const found = { layer: "homeserver", status: 200 } as const;
  const eventId = await from.send(room, { msgtype: "m.notice", body: "Between the two of us" });
  const path = `/rooms/${encodeURIComponent(room)}/event/${encodeURIComponent(eventId)}`;
  for (const deadline = clock.now() + ARRIVAL_MS; clock.now() < deadline; ) {
    if ((await to.request("GET", path)).status === 200) return { ...found, verdict: "open", reason: "seen" };
    await clock.sleep(ARRIVAL_POLL_MS);
  }
  return { ...found, verdict: "unknown", reason: "not_seen" };
}
