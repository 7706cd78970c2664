// A homeserver in memory that asks more than a real one can beside three bridge processes: rooms of people and ghosts, plain
// and encrypted, keys, to-device messages, and the transactions to the bridge.
// Invariants: as a homeserver does, it sends one transaction at a time and repeats it until it is taken; what is sent again
// under its transaction ID is the event there is; to-device messages come in a transaction, and can be read by /sync as well.
import type { TestContext } from "node:test";
import { freePort } from "../../lab/ports.ts";
import { systemClock, systemRandom } from "../../src/domain/clock.ts";
import type { EventId, RoomId, ServerName } from "../../src/domain/identifiers.ts";
import { KeyServer } from "../support/crypto-world.ts";
import type { BridgedHomeserver } from "../support/encrypted-bridge.ts";
import { type ReceivedRequest, type ScriptedAnswer, scriptedHomeserver } from "../support/http-server.ts";
import type { RoomMessage } from "../support/synapse.ts";

type Json = Readonly<Record<string, unknown>>;

const EVENTS_PER_TRANSACTION_MAX = 100;
const MESSAGES_PER_PAGE_MAX = 100;
/** Synapse waits so long for an answer. */
const TRANSACTION_MS_MAX = 60_000;
const AGAIN_MS = 100;
const POLL_MS = 2;
const NOT_FOUND: ScriptedAnswer = { status: 404, body: { errcode: "M_NOT_FOUND", error: "" } };

export interface Said extends RoomMessage {
  readonly event_id: EventId;
  readonly room: RoomId;
  /** Milliseconds since the Unix epoch. */
  readonly at: number;
}

export interface LoadHomeserver extends BridgedHomeserver {
  readonly keys: KeyServer;
  /** What ghosts sent to rooms, in its order. */
  readonly sent: readonly Said[];
  /** What was answered to transactions but 200. */
  readonly refusals: readonly string[];
  /** The longest that a transaction took until it was taken, in milliseconds. */
  readonly slowestMs: () => number;
  /** A room with these members. */
  open(room: RoomId, members: readonly string[], isEncrypted: boolean): void;
  /** An event of a person, on its way to the bridge from then on. */
  say(room: RoomId, sender: string, type: string, content: Json, more?: Json): Said;
}

export async function startLoadHomeserver(t: TestContext): Promise<LoadHomeserver> {
  const keys = new KeyServer();
  const rooms = new Map<string, { readonly members: readonly string[]; readonly isEncrypted: boolean }>();
  const events = new Map<string, Json>();
  const queue: Json[] = [];
  const accountData = new Map<string, unknown>();
  const sent: Said[] = [];
  const byTransactionId = new Map<string, EventId>();
  const toDevice = new Map<string, Json[]>();
  const refusals: string[] = [];
  let slowestMs = 0;
  const ending = new AbortController();
  const newId = () => `$load${events.size + sent.length}` as EventId;

  const ofRoom = ({ method, body }: ReceivedRequest, from: string, path: readonly string[]) => {
    const [id = "", what = "", type = "", name = ""] = path;
    const room = rooms.get(id);
    if (room === undefined) return NOT_FOUND;
    if (what === "joined_members")
      return { body: { joined: Object.fromEntries(room.members.map((member) => [member, {}])) } };
    if (what === "event") return events.has(type) ? { body: events.get(type) } : NOT_FOUND;
    if (what === "state" && method === "GET") {
      const isThere = type === "m.room.encryption" && room.isEncrypted;
      return isThere ? { body: { algorithm: "m.megolm.v1.aes-sha2" } } : NOT_FOUND;
    }
    if (what !== "send") return { body: {} };
    const transactionId = `${from} ${id} ${type} ${name}`;
    const event_id = byTransactionId.get(transactionId) ?? newId();
    if (!byTransactionId.has(transactionId)) {
      const [sender = ""] = from.split(" ");
      const content = body as Json;
      sent.push({ event_id, room: id as RoomId, sender, type, content, at: systemClock.now() });
    }
    byTransactionId.set(transactionId, event_id);
    return { body: { event_id } };
  };

  const sync = async (user: string, device: string, query: URLSearchParams) => {
    const holdMs = Number(query.get("timeout"));
    if (holdMs > 0) await systemClock.sleep(holdMs, ending.signal).catch(() => undefined);
    if (device === "") return { body: { next_batch: "s0" } };
    const from = Number((query.get("since") ?? "s0").slice(1));
    const page = (toDevice.get(user) ?? []).slice(from, from + MESSAGES_PER_PAGE_MAX);
    return { body: { next_batch: `s${from + page.length}`, to_device: { events: page } } };
  };

  const answer = async (request: ReceivedRequest): Promise<ScriptedAnswer> => {
    const { method, query, body } = request;
    const user = query.get("user_id") ?? "@drawbridge:a.test";
    const device = query.get("device_id") ?? "";
    const path = request.path.replace(/^\/_matrix\/client(\/v\d)?/, "");
    const [, area = "", ...rest] = path.split("/");
    switch (area) {
      case "versions":
        return { body: { versions: ["v1.11"] } };
      case "account":
        return { body: { user_id: user, device_id: device } };
      case "user":
        if (method === "PUT") accountData.set(path, body);
        return accountData.has(path) ? { body: accountData.get(path) } : NOT_FOUND;
      case "keys":
      case "sendToDevice":
        return { body: await keys.callOf(user, device)(method, path, body) };
      case "sync":
        return await sync(user, device, query);
      case "join":
        return { body: { room_id: rest[0] } };
      case "rooms":
        return ofRoom(request, `${user} ${device}`, rest);
      default:
        return { body: {} };
    }
  };
  const server = await scriptedHomeserver(t, answer);
  const port = await freePort();
  const hsToken = systemRandom.bytes(24).toString("hex");

  const newMail = (): Json[] =>
    Object.entries(keys.devices).flatMap(([user, devices]) => {
      if (!user.startsWith("@agent_")) return [];
      return Object.keys(devices).flatMap((device) => {
        const messages = keys.take(user, device);
        toDevice.set(user, [...(toDevice.get(user) ?? []), ...messages]);
        return messages.map((message) => ({ ...message, to_user_id: user, to_device_id: device }));
      });
    });
  const put = async (transaction: number, body: string) => {
    const begun = systemClock.now();
    for (;;) {
      const url = `http://127.0.0.1:${port}/_matrix/app/v1/transactions/${transaction}`;
      const headers = { authorization: `Bearer ${hsToken}`, "content-type": "application/json" };
      const signal = AbortSignal.any([AbortSignal.timeout(TRANSACTION_MS_MAX), ending.signal]);
      const status = await fetch(url, { method: "PUT", headers, body, signal }).then(
        (response) => response.arrayBuffer().then(() => String(response.status)),
        String,
      );
      slowestMs = Math.max(slowestMs, systemClock.now() - begun);
      if (status === "200" || ending.signal.aborted) return;
      refusals.push(status);
      await systemClock.sleep(AGAIN_MS);
    }
  };
  const deliver = async () => {
    for (let transaction = 0; !ending.signal.aborted; ) {
      const next = { events: queue.splice(0, EVENTS_PER_TRANSACTION_MAX), to_device: newMail() };
      if (next.events.length + next.to_device.length === 0) await systemClock.sleep(POLL_MS);
      else await put(transaction++, JSON.stringify(next));
    }
  };

  const say: LoadHomeserver["say"] = (room, sender, type, content, more = {}) => {
    const event = { event_id: newId(), sender, type, content, at: systemClock.now() };
    const { at: origin_server_ts, ...shown } = event;
    const raw = { ...shown, room_id: room, origin_server_ts, ...more };
    events.set(event.event_id, raw);
    queue.push(raw);
    return { ...event, room };
  };
  const delivered = deliver();
  t.after(async () => {
    ending.abort();
    await delivered;
  });
  return {
    ...{ keys, sent, refusals, say, hsToken },
    serverName: "a.test" as ServerName,
    url: server.url,
    asToken: systemRandom.bytes(24).toString("hex"),
    bridge: { port },
    slowestMs: () => slowestMs,
    open: (room, members, isEncrypted) => {
      rooms.set(room, { members, isEncrypted });
      for (const member of members)
        say(room, member, "m.room.member", { membership: "join" }, { state_key: member });
    },
  };
}
