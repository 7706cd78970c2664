// Asks the device that made a room key for it, and takes the request back when it is no longer needed.
// Invariants: a session is asked for once in an interval, however many of its events wait; a request has the
// same ID whenever it is made, so that repeating it asks nothing new and any process can take it back;
// nothing of it is logged or stored. What comes back is judged by the machine's policy, not here.
// Protocol: Matrix client-server API, "m.room_key_request".
import { sha256 } from "../../domain/digest.ts";
import type { GhostMxid, RoomId, UserId } from "../../domain/identifiers.ts";
import type { GhostDevices } from "./device-types.ts";
import type { EncryptedRoomEvent } from "./types.ts";

const REQUEST = "m.room_key_request";
/** More ghosts of one room are not asked with: the key is shared with all of them, or lost for all. */
const GHOSTS_MAX = 3;
/** Sessions remembered as asked for; the oldest are forgotten. */
const REMEMBERED_MAX = 10_000;

export interface KeyRequestDependencies {
  readonly devices: Pick<GhostDevices, "sendToDevice" | "statuses">;
  readonly observe: (outcome: "sent" | "failed" | "canceled") => void;
}

/** What a request names of the event's session. */
interface Session {
  readonly room: RoomId;
  readonly sender: UserId;
  readonly sessionId: string;
  readonly senderKey: string | undefined;
}

export class KeyRequests {
  readonly #deps: KeyRequestDependencies;
  /** When each session was last asked for, by its request ID, and whether that could be sent. */
  readonly #asked = new Map<string, { readonly at: number; readonly sent: Promise<boolean> }>();

  constructor(deps: KeyRequestDependencies) {
    this.#deps = deps;
  }

  /**
   * Asks the sender's devices for the key of an event.
   * @param intervalMs within this time it is not asked for again
   * @returns whether it has been asked for now, or within the interval
   */
  async request(
    ghosts: readonly GhostMxid[],
    event: EncryptedRoomEvent,
    now: number,
    intervalMs: number,
  ): Promise<boolean> {
    const session = sessionOf(event);
    if (session === undefined) return false;
    const sent = await Promise.all(
      this.#askers(ghosts).map(({ ghost, deviceId }) => {
        const id = requestId(ghost, session);
        const last = this.#asked.get(id);
        if (last !== undefined && now - last.at < intervalMs) return last.sent;
        const asking = this.#ask(ghost, deviceId, id, session);
        this.#remember(id, now, asking);
        return asking;
      }),
    );
    return sent.some((done) => done);
  }

  /** Takes back what was asked for the event's session. That it does not arrive harms nobody. */
  async cancel(ghosts: readonly GhostMxid[], event: EncryptedRoomEvent): Promise<void> {
    const session = sessionOf(event);
    if (session === undefined) return;
    await Promise.all(
      this.#askers(ghosts).map(async ({ ghost, deviceId }) => {
        const id = requestId(ghost, session);
        const outcome = await this.#deps.devices.sendToDevice(ghost, REQUEST, {
          [session.sender]: {
            "*": { action: "request_cancellation", request_id: id, requesting_device_id: deviceId },
          },
        });
        this.#asked.delete(id);
        if (outcome.kind === "ok") this.#deps.observe("canceled");
      }),
    );
  }

  #askers(ghosts: readonly GhostMxid[]) {
    const asked = new Set(ghosts);
    return this.#deps.devices
      .statuses()
      .filter(({ ghost, state }) => state === "ready" && asked.has(ghost))
      .slice(0, GHOSTS_MAX);
  }

  async #ask(ghost: GhostMxid, deviceId: string, id: string, session: Session): Promise<boolean> {
    const outcome = await this.#deps.devices.sendToDevice(ghost, REQUEST, {
      [session.sender]: {
        "*": {
          action: "request",
          body: {
            algorithm: "m.megolm.v1.aes-sha2",
            room_id: session.room,
            session_id: session.sessionId,
            ...(session.senderKey !== undefined && { sender_key: session.senderKey }),
          },
          request_id: id,
          requesting_device_id: deviceId,
        },
      },
    });
    const isSent = outcome.kind === "ok";
    this.#deps.observe(isSent ? "sent" : "failed");
    // What could not be sent may be tried again at the next look.
    if (!isSent) this.#asked.delete(id);
    return isSent;
  }

  #remember(id: string, at: number, sent: Promise<boolean>): void {
    this.#asked.delete(id);
    this.#asked.set(id, { at, sent });
    const oldest = this.#asked.keys().next();
    if (this.#asked.size > REMEMBERED_MAX && oldest.done !== true) this.#asked.delete(oldest.value);
  }
}

function sessionOf({ room, sender, raw }: EncryptedRoomEvent): Session | undefined {
  const content = raw["content"];
  if (typeof content !== "object" || content === null) return undefined;
  const { session_id: sessionId, sender_key: senderKey } = content as Readonly<Record<string, unknown>>;
  if (typeof sessionId !== "string" || sessionId === "") return undefined;
  return { room, sender, sessionId, senderKey: typeof senderKey === "string" ? senderKey : undefined };
}

function requestId(ghost: GhostMxid, { room, sender, sessionId }: Session): string {
  return sha256(JSON.stringify([ghost, room, sender, sessionId]))
    .toString("hex")
    .slice(0, 32);
}
