// Requests a room key from its maker's devices (Matrix client-server API, "m.room_key_request"), and cancels the request
// when no event waits for the key any more.
// Invariants: a session is requested once in an interval, however many of its events wait; its request always has the same
// ID, so that any process that has the event can repeat or cancel it; nothing of it is logged or stored.
import { LRUCache } from "lru-cache";
import { sha256 } from "../../domain/digest.ts";
import { type EventId, type GhostMxid, isId } from "../../domain/identifiers.ts";
import { membersOf, type UnknownObject } from "../../domain/json.ts";
import type { EncryptedRoomEvent } from "./decrypt-event.ts";
import type { DeviceStatus } from "./ghost-device.ts";
import type { GhostDevices } from "./ghost-devices.ts";

/** No more ghosts of one room send a request: the key is shared with all of them, or lost for all. */
const GHOSTS_MAX = 3;
const REMEMBERED_MAX = 10_000;

/** An event, and the ghosts that may have requested its key. */
export interface AskedFor {
  readonly ghosts: readonly GhostMxid[];
  readonly event: EncryptedRoomEvent;
}

type Request = ReturnType<typeof requestsFor>[number];

interface Asked extends Request {
  readonly at: number;
  readonly sent: Promise<boolean>;
  /** The events that wait for the key. */
  readonly events: Set<EventId>;
}

export function createKeyRequests(
  devices: Pick<GhostDevices, "sendToDevice" | "statuses">,
  observe: (outcome: "sent" | "failed" | "canceled") => void,
) {
  /** By request ID. */
  const made = new LRUCache<string, Asked>({ max: REMEMBERED_MAX });

  /** Requests an event's key; returns whether that was done now or within the interval. */
  async function request(asked: AskedFor, now: number, intervalMs: number): Promise<boolean> {
    const { event } = asked.event;
    const sent = await Promise.all(
      requestsFor(devices.statuses(), asked).map((request) => {
        const last = made.peek(request.id);
        last?.events.add(event);
        if (last !== undefined && now - last.at < intervalMs) return last.sent;
        const asking = ask(request);
        made.set(request.id, { ...request, at: now, sent: asking, events: last?.events ?? new Set([event]) });
        return asking;
      }),
    );
    return sent.some((done) => done);
  }

  async function keyCame(asked: AskedFor): Promise<void> {
    await Promise.all(requestsFor(devices.statuses(), asked).map(cancel));
  }

  // Without the event only the requests of this process can be canceled.
  /** Cancels the requests for an event that waits no more though its key never came, unless another event waits for it. */
  async function ended(event: EventId, whole?: AskedFor): Promise<void> {
    const known = [...made.values()].filter(({ events }) => events.delete(event));
    const asked = known.length > 0 || whole === undefined ? known : requestsFor(devices.statuses(), whole);
    const idle = asked.filter(({ id }) => (made.peek(id)?.events.size ?? 0) === 0);
    await Promise.all(idle.map(cancel));
  }

  async function ask(request: Request): Promise<boolean> {
    const { room, sessionId, senderKey } = request.session;
    const body = {
      algorithm: "m.megolm.v1.aes-sha2",
      room_id: room,
      session_id: sessionId,
      ...(senderKey !== undefined && { sender_key: senderKey }),
    };
    const outcome = await send(request, { action: "request", body });
    const isSent = outcome.kind === "ok";
    observe(isSent ? "sent" : "failed");
    if (!isSent) made.delete(request.id);
    return isSent;
  }

  async function cancel(request: Request): Promise<void> {
    made.delete(request.id);
    const outcome = await send(request, { action: "request_cancellation" });
    if (outcome.kind === "ok") observe("canceled");
  }

  function send({ id, ghost, deviceId, session }: Request, content: UnknownObject) {
    const message = { ...content, request_id: id, requesting_device_id: deviceId };
    return devices.sendToDevice(ghost, "m.room_key_request", { [session.sender]: { "*": message } });
  }

  return { request, keyCame, ended };
}

/** The requests that are, or were, made for an event's session. */
function requestsFor(devices: readonly DeviceStatus[], { ghosts, event }: AskedFor) {
  const { room, sender, raw } = event;
  const { session_id: sessionId, sender_key: senderKey } = membersOf(raw["content"]);
  // A request is kept while events wait, so what it names is bounded.
  if (!isId(sessionId) || sessionId === "") return [];
  const session = { room, sender, sessionId, senderKey: isId(senderKey) ? senderKey : undefined };
  const ready = devices.filter(({ ghost, state }) => state === "ready" && ghosts.includes(ghost));
  return ready.slice(0, GHOSTS_MAX).map(({ ghost, deviceId }) => {
    const digest = sha256(JSON.stringify([ghost, room, sender, sessionId]));
    return { id: digest.toString("hex").slice(0, 32), ghost, deviceId, session };
  });
}
