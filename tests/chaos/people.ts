// Those who ask, and what they see of the rooms: clients that keep trying while their homeserver is away, as people's do.
// Invariants: an event is sent under one transaction ID until the homeserver has accepted it, so that a client never
// repeats a question; each event of a room is seen once, in the order in which this homeserver shows them; what a client
// does with its machine is done one after the other.
import { GHOST_PREFIX, homeserverEndpoints } from "../../lab/endpoints.ts";
import type { Lab } from "../../lab/lab.ts";
import type { OrganisationName } from "../../lab/organisations.ts";
import type { Seed } from "../../lab/seed/seed-file.ts";
import { systemClock } from "../../src/domain/clock.ts";
import type { EventId, GhostMxid, RoomId, UserId } from "../../src/domain/identifiers.ts";
import { Serial } from "../../src/runtime/concurrency.ts";
import { devicesOf } from "../support/encrypted-bridge.ts";
import { EncryptingClient, repliesTo } from "../support/encrypting-client.ts";
import { isStatus } from "../support/lab-questions.ts";
import { type RoomMessage, type TestUser, userOf } from "../support/synapse.ts";
import type { Said } from "./oracle.ts";
import { isAgentQuestion } from "./topics.ts";

const AGAIN_MS = 100;
/** What a homeserver says of a request that will never do. */
const REFUSED = /: HTTP 4(?!29)\d\d /;

export interface ReceivedEvent extends RoomMessage {
  readonly room: RoomId;
}

export class Person {
  readonly userId: UserId;
  readonly #client: EncryptingClient;
  readonly #machine = new Serial();
  readonly #arrived: ReceivedEvent[];
  readonly #withheldIn = new Set<RoomId>();
  /** Encrypted events whose keys are not here yet. */
  #closed: ReceivedEvent[] = [];

  private constructor(client: EncryptingClient, arrived: ReceivedEvent[]) {
    this.userId = client.user.userId;
    this.#client = client;
    this.#arrived = arrived;
  }

  /** The first person of an organisation, on a new device. */
  static async logIn(lab: Lab, seed: Seed, organisation: OrganisationName): Promise<Person> {
    const [seeded] = seed.users[organisation];
    if (seeded === undefined) throw new TypeError(`${organisation} has no user`);
    const { clientUrl } = homeserverEndpoints(lab, organisation);
    const session = { user_id: seeded.userId as UserId, access_token: seeded.accessToken };
    const user = await userOf(clientUrl, seeded.password, session).logIn();
    const arrived: ReceivedEvent[] = [];
    const patient: TestUser = {
      ...user,
      call: patiently(user.call, (answer) => arrived.push(...eventsOf(answer))),
    };
    return new Person(await EncryptingClient.start(patient), arrived);
  }

  createRoom(options: Readonly<Record<string, unknown>>): Promise<RoomId> {
    return this.#client.user.createRoom(options);
  }

  async members(room: RoomId): Promise<readonly string[]> {
    const answer = await this.#client.user.call("GET", `/rooms/${encodeURIComponent(room)}/joined_members`);
    return Object.keys(answer["joined"] as object);
  }

  /** The devices of a user, as the homeserver publishes them. */
  devicesOf(user: GhostMxid): Promise<readonly string[]> {
    return devicesOf(this.#client.user, user);
  }

  /**
   * Sends a message; resolves when the homeserver has accepted it.
   * @param isWithheld keeps the key of an encrypted one back, until `release`
   */
  async send(
    room: RoomId,
    isEncrypted: boolean,
    content: Readonly<Record<string, unknown>>,
    isWithheld = false,
  ): Promise<EventId> {
    if (!isEncrypted) return await this.#client.sendRaw(room, content, "m.room.message");
    const encrypted = await this.#machine.run(async () => {
      // What follows a key that is kept back has a key of its own.
      const rotate = isWithheld || this.#withheldIn.has(room);
      await this.#client.share(room, { withhold: isWithheld, rotate });
      if (isWithheld) this.#withheldIn.add(room);
      else this.#withheldIn.delete(room);
      return await this.#client.encrypt(room, "m.room.message", content);
    });
    return await this.#client.sendRaw(room, encrypted);
  }

  /** Sends the keys that were kept back. */
  async release(): Promise<void> {
    await this.#machine.run(() => this.#client.release());
  }

  async redact(room: RoomId, event: EventId): Promise<void> {
    const path = ["rooms", room, "redact", event, `redact-${event}`].map(encodeURIComponent).join("/");
    await this.#client.user.call("PUT", `/${path}`, {});
  }

  /** Leaves out what was in the rooms before. */
  async begin(): Promise<void> {
    await this.poll();
    this.#closed = [];
  }

  /** Everything that has come since the last poll, and what could not be opened then. */
  async poll(): Promise<{ readonly events: readonly ReceivedEvent[]; readonly said: readonly Said[] }> {
    return await this.#machine.run(async () => {
      await this.#client.sync();
      const events = this.#arrived.splice(0);
      const said: Said[] = [];
      const closed = [...this.#closed, ...events.filter(({ type }) => type === "m.room.encrypted")];
      this.#closed = [];
      for (const event of closed) {
        const { type, content } = await this.#client.open(event.room, event);
        if (type === "m.room.encrypted") this.#closed.push(event);
        // What is not encrypted of the event tells a status message.
        else said.push(...saidIn({ ...event, type, content: { ...event.content, ...content } }));
      }
      return { events, said: [...said, ...events.flatMap(saidIn)] };
    });
  }

  close(): void {
    this.#client.close();
  }
}

/** Repeats a request until the homeserver accepts or refuses it. */
function patiently(
  call: TestUser["call"],
  onSync: (answer: Readonly<Record<string, unknown>>) => void,
): TestUser["call"] {
  return async (method, path, body) => {
    for (;;) {
      try {
        const answer = await call(method, path, body);
        if (path.startsWith("/sync?")) onSync(answer);
        return answer;
      } catch (error) {
        if (error instanceof Error && REFUSED.test(error.message)) throw error;
        await systemClock.sleep(AGAIN_MS);
      }
    }
  };
}

interface Timeline {
  readonly events?: readonly RoomMessage[];
  readonly limited?: boolean;
}

function eventsOf(sync: Readonly<Record<string, unknown>>): ReceivedEvent[] {
  const { join = {} } = (sync["rooms"] ?? {}) as { join?: Record<string, { timeline?: Timeline }> };
  return Object.entries(join).flatMap(([room, { timeline }]) =>
    (timeline?.events ?? []).map((event) => ({ ...event, room: room as RoomId })),
  );
}

/** What a ghost says; a status message, an edit and a file are none of it. */
function saidIn({ type, sender, content, event_id, room }: ReceivedEvent): Said[] {
  const relation = content["m.relates_to"] as { rel_type?: unknown } | undefined;
  if (type !== "m.room.message" || !sender.startsWith(`@${GHOST_PREFIX}`)) return [];
  if (relation?.rel_type === "m.replace" || isStatus(content)) return [];
  const body = String(content["body"]);
  const kind =
    content["msgtype"] === "m.notice" ? "notice" : isAgentQuestion(body) ? "agent_question" : "answer";
  const to = repliesTo({ type, sender, content, event_id });
  return [{ event: event_id, room, sender, to, kind, body }];
}
