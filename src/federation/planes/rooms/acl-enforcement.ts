// Whether an ACL is enforced, which its state event does not prove: by the homeserver's own enforcing cache, and at
// each retained server by its having the event. Invariants: a room counts as enforced only by an answer that was
// received after its last change, the same ACL sent again included; no server is waited for beyond the time-out, but for
// the requests that have begun.
import { DrawbridgeError, undefinedFor } from "../../../domain/errors.ts";
import type { EventId, RoomId, ServerName } from "../../../domain/identifiers.ts";
import { counted } from "../../../domain/printable.ts";
import { mapConcurrent } from "../../../runtime/concurrency.ts";
import { statusOfEvent } from "../../homeserver/signed-request.ts";
import { aclAllow, deniedByEnforcement, reordered } from "./acl.ts";
import { isClosing, planRoom } from "./plan-room-steps.ts";
import type { ClosingPartner } from "./render.ts";
import type { RoomReason } from "./room-reasons.ts";
import { joinedByServer, type RoomState } from "./room-state.ts";
import { ROOMS_AT_ONCE, type RoomsSession, readRoom } from "./session.ts";

export interface EnforcementGap {
  readonly room: RoomId;
  readonly server: ServerName;
  readonly reason: Extract<RoomReason, "stale_at_home" | "unproven_at_home" | "unproven_at_retained">;
}

const ROOMS_A_REQUEST = 500;
/** How long the own and a retained server may take to enforce an ACL. */
const ENFORCED_WITHIN_MS = 30_000;
const HOME_POLL_FIRST_MS = 10;
const HOME_POLL_MAX_MS = 1_000;
const RETAINED_POLL_FIRST_MS = 25;
/** While a server still shows further events. */
const RETAINED_POLL_BEHIND_MS = 200;
const RETAINED_POLL_MAX_MS = 1_000;
const RETAINED_AT_ONCE = 8;
/** A server that has shown no event for so long is sent new ones, which make it fetch what it lacks. */
const RESEND_AFTER_MS = 3_000;

/** @throws DrawbridgeError `homeserver_unavailable`, `homeserver_refused` when the border module does not say */
export async function staleAtHome(session: RoomsSession, rooms: readonly RoomId[]) {
  const { intent, home } = session;
  const closing = intent.closing.flatMap(({ serverName }) => aclAllow([serverName]));
  const servers = [...new Set([...intent.allow, ...closing])];
  const stale = new Set<string>();
  for (const some of chunks(rooms)) {
    for (const more of chunks(servers)) for (const room of await home.differing(some, more)) stale.add(room);
  }
  return rooms.filter((room) => stale.has(room));
}

function chunks<T>(all: readonly T[]): readonly (readonly T[])[] {
  return Array.from({ length: Math.ceil(all.length / ROOMS_A_REQUEST) }, (_, index) =>
    all.slice(index * ROOMS_A_REQUEST, (index + 1) * ROOMS_A_REQUEST),
  );
}

export async function enforceAtHome(session: RoomsSession, rooms: readonly RoomId[]) {
  const { intent, home, clock } = session;
  const deadline = clock.now() + ENFORCED_WITHIN_MS;
  let left = rooms;
  let seen: number | undefined;
  for (let pollMs = HOME_POLL_FIRST_MS; ; pollMs = Math.min(pollMs * 2, HOME_POLL_MAX_MS)) {
    const stale = await staleAtHome(session, left).catch((error: unknown) => {
      if (error instanceof DrawbridgeError) return error;
      throw error;
    });
    const isUnproven = stale instanceof DrawbridgeError;
    if (!isUnproven) {
      left = stale;
      seen ??= left.length;
    }
    const isLasting = isUnproven && stale.code !== "homeserver_unavailable";
    if (left.length === 0 || isLasting || clock.now() >= deadline) {
      const reason = isUnproven ? "unproven_at_home" : "stale_at_home";
      const gaps = left.map((room) => ({ room, server: intent.own as ServerName, reason }) as const);
      const repaired = (seen ?? left.length) - left.length;
      if (seen) session.note(`${counted(seen, "room")} stale at the own homeserver, ${repaired} repaired`);
      return { gaps, isRepaired: repaired > 0 };
    }
    await mapConcurrent(left, ROOMS_AT_ONCE, (room) => home.refresh(room).catch(() => undefined));
    await clock.sleep(pollMs);
  }
}

type Named = Pick<ClosingPartner, "serverName">;

/** Whether other servers must show a room's ACL: it is of our making, or denies a partner whom the room concerns. */
export function mustBeProven({ acl }: Pick<RoomState, "acl">, concerned: readonly Named[], isOurs: boolean) {
  if (acl === undefined) return false;
  return isOurs || concerned.some(({ serverName }) => deniedByEnforcement(acl.content, serverName));
}

export function retainedServers(session: RoomsSession, state: RoomState): readonly ServerName[] {
  const { own, closing } = session.intent;
  const isRetained = (server: string) => server !== own && !isClosing(closing, server);
  return [...joinedByServer(state).keys()].filter(isRetained) as ServerName[];
}

/** Whether a server has this ACL event: it gives it to the signed request of a server in the room. */
export async function showsAcl(session: RoomsSession, server: ServerName, event: EventId, timeoutMs: number) {
  return (await statusOfEvent(session.signed, server, event, timeoutMs)) === 200;
}

/** Requests each room's ACL event from every retained server, and sends the ACL anew where one does not show it. */
export async function enforceAtRetained(session: RoomsSession, rooms: readonly RoomState[]) {
  const waiting = new Map<ServerName, Proof[]>();
  for (const state of rooms) {
    if (state.acl === undefined) continue;
    const proof: Proof = { room: state.roomId, event: state.acl.eventId, resending: undefined };
    for (const server of retainedServers(session, state))
      waiting.set(server, [...(waiting.get(server) ?? []), proof]);
  }
  const resent = new Set<RoomId>();
  const all = [...waiting].map(([server, proofs]) => awaitServer(session, server, proofs, resent));
  const gaps = (await Promise.all(all)).flat();
  return [...gaps, ...(await enforceAtHome(session, [...resent])).gaps];
}

/** The ACL event of a room whose presence proves the ACL: the last, or the one that was sent again. */
interface Proof {
  readonly room: RoomId;
  event: EventId;
  resending: Promise<void> | undefined;
}

// Requests a few at a time, and waits when none is shown, so that a server that is behind is not kept busy. Half are missing
// the longest, because a server takes events in about the order of their making; the others are taken in turn.
async function awaitServer(
  session: RoomsSession,
  server: ServerName,
  proofs: readonly Proof[],
  resent: Set<RoomId>,
) {
  const { clock } = session;
  let progressAt = clock.now();
  const deadline = progressAt + ENFORCED_WITHIN_MS;
  let missing = proofs;
  let from = 0;
  let pollMs = RETAINED_POLL_FIRST_MS;
  let isResent = false;
  while (missing.length > 0) {
    if (clock.now() >= deadline)
      return missing.map(({ room }): EnforcementGap => ({ room, server, reason: "unproven_at_retained" }));
    const longest = missing.slice(0, RETAINED_AT_ONCE / 2);
    const inTurn = [...missing.slice(from), ...missing.slice(0, from)];
    const some = [...new Set([...longest, ...inTurn])].slice(0, RETAINED_AT_ONCE);
    from = (from + RETAINED_AT_ONCE - longest.length) % missing.length;
    const remainingMs = Math.max(deadline - clock.now(), RETAINED_POLL_FIRST_MS);
    const asked = some.map(({ event }) => showsAcl(session, server, event, remainingMs));
    const answers = await Promise.all(asked);
    const shown = new Set(some.filter((_, index) => answers[index]));
    missing = missing.filter((proof) => !shown.has(proof));
    if (shown.size > 0) {
      progressAt = clock.now();
      pollMs = Math.min(pollMs, RETAINED_POLL_BEHIND_MS);
      continue;
    }
    if (!isResent && clock.now() - progressAt >= RESEND_AFTER_MS) {
      isResent = true;
      await mapConcurrent(missing, RETAINED_AT_ONCE, async (proof) => {
        if (clock.now() >= deadline) return;
        proof.resending ??= resend(session, proof, resent).catch(undefinedFor());
        await proof.resending;
      });
    }
    await clock.sleep(pollMs);
    pollMs = Math.min(pollMs * 2, RETAINED_POLL_MAX_MS);
  }
  return [];
}

/** `resent` is told of a room before it is tried, because the event may be there although the answer is lost. */
async function resend(session: RoomsSession, proof: Proof, resent: Set<RoomId>): Promise<void> {
  const { room } = proof;
  const state = await readRoom(session, room);
  if (state?.acl === undefined) return;
  const { actor, steps } = planRoom(session, state);
  const content = reordered(state.acl.content);
  if (actor === undefined || steps.length > 0 || content === undefined) return;
  const acting = await session.tokens.as(actor);
  if (acting === undefined) return;
  const anew = { ...state.acl.content, ...content };
  resent.add(room);
  proof.event = await acting.putState(room, "m.room.server_acl", "", anew);
}
