// Brings a guest organisation's ghost into a room. Invariants: the guest invites it, as an organisation does for
// its own; where that is refused the host does, because a room that has replaced another, as a removal leaves
// it behind, lets its moderators alone invite; it counts once the guest's own homeserver shows it.
import type { Clock } from "../../src/domain/clock.ts";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import type { RoomId, UserId } from "../../src/domain/identifiers.ts";
import type { MatrixUser } from "../matrix-user.ts";

const SHOWN_WITHIN_MS = 90_000;
const POLL_MS = 500;
/** An invitation that has not arrived by then is made again. */
const INVITE_AGAIN_MS = 10_000;

export interface HostAndGuest {
  /** Who made the room. */
  readonly host: MatrixUser;
  /** A person of the ghost's organisation, who is in the room. */
  readonly guest: MatrixUser;
}

/**
 * Until the guest sees the ghost invited, or in the room.
 * @throws DrawbridgeError `homeserver_unavailable`; `program_failed` when it is not shown in time
 */
export async function bringGhost(
  room: RoomId,
  { host, guest }: HostAndGuest,
  ghost: UserId,
  clock: Clock,
): Promise<void> {
  const path = `/rooms/${encodeURIComponent(room)}`;
  const member = `${path}/state/m.room.member/${encodeURIComponent(ghost)}`;
  let inviteAt = clock.now();
  for (const deadline = clock.now() + SHOWN_WITHIN_MS; ; await clock.sleep(POLL_MS)) {
    const { status, body } = await guest.request("GET", member);
    if (status === 200 && (body["membership"] === "join" || body["membership"] === "invite")) return;
    if (clock.now() > deadline) throw notIn(room, ghost, String(body["membership"] ?? body["errcode"]));
    if (clock.now() < inviteAt) continue;
    const invited = await guest.request("POST", `${path}/invite`, { user_id: ghost });
    // Refused as well where the host has it there already, and the guest's homeserver does not show it yet.
    if (invited.status !== 200) await host.request("POST", `${path}/invite`, { user_id: ghost });
    inviteAt = clock.now() + INVITE_AGAIN_MS;
  }
}

/** Somebody who did not come into a room, and what the homeserver said instead. */
export function notIn(room: RoomId, user: string, found: string): DrawbridgeError {
  return new DrawbridgeError("program_failed", `${user} does not come into ${room}: ${found}`, {
    hint: "See ./task fed:status, and the bridge's log; then run the same task again.",
  });
}
