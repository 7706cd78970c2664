// Which steps close one room, in which order, and what cannot be done there. Changes nothing.
// Invariants: the order is invite level, bans, ACL, read-only, because a member who was never banned goes on receiving,
// and the ACL comes before the bans where more users could come meanwhile; nothing is planned that the acting user has no
// power for, or that holds already; an ACL that denies a server whose users stay is never planned.
import { type ServerName, serverOf, type UserId } from "../../../domain/identifiers.ts";
import type { UnknownObject } from "../../../domain/json.ts";
import { enforcementOf, isLong, isSameAcl, reordered, type ServerAcl, serverAcl, withDenied } from "./acl.ts";
import { banLevel, byLevel, inviteLevel, levelOf, mayBan, maySend, readOnly } from "./power-levels.ts";
import type { ClosingPartner, RoomsIntent } from "./render.ts";
import type { RoomReason } from "./room-reasons.ts";
import { formerOf, isFederated, isOneHost, joinedByServer, presentOf, type RoomState } from "./room-state.ts";
import type { RoomsSession } from "./session.ts";
import { recordOf } from "./undo-journal.ts";

export type RoomStep =
  | { readonly kind: "raise_invite" | "read_only"; readonly level: number; readonly content: UnknownObject }
  | { readonly kind: "ban"; readonly partner: string; readonly user: UserId }
  | { readonly kind: "set_acl"; readonly content: ServerAcl };

export interface Obstacle {
  readonly partner: string;
  readonly reason: RoomReason;
}

/** Levels are integers up to this one (Matrix appendices, canonical JSON). */
const LEVEL_MAX = 2 ** 53 - 1;
export const MODERATOR = 50;
export const ADMINISTRATOR = 100;

export function isOurs(room: RoomState, own: string): boolean {
  return room.creator !== undefined && serverOf(room.creator) === own;
}

/** What this pass has done in the room already. */
export interface Earlier {
  /** Steps that the homeserver has refused, by `nameOf`: they are not planned again, and keep no other from being taken. */
  readonly refused: ReadonlySet<string>;
  /** Set when users have come while others were banned. */
  readonly isOverrun: boolean;
}

export function nameOf(step: RoomStep): string {
  return step.kind === "ban" ? `ban ${step.user}` : step.kind;
}

/** With more to ban the ACL is set before, because meanwhile more of them could come. */
const BANS_BEFORE_ACL = 50;

const NOTHING: Earlier = { refused: new Set(), isOverrun: false };

/** `concerned`: closing partners that are present, or that this plane has banned from the room. */
export function planRoom(session: RoomsSession, room: RoomState, { refused, isOverrun } = NOTHING) {
  const { intent } = session;
  const present = new Map(intent.closing.map((one) => [one.serverName, presentOf(room, one.serverName)]));
  const concerned = intent.closing.filter(({ serverName }) => {
    const record = recordOf(session, serverName, room.roomId);
    const isRecorded = record !== undefined && (record.bans.size > 0 || record.replace !== undefined);
    return isRecorded || (present.get(serverName)?.length ?? 0) > 0;
  });
  const { actor, reason: absence } = chooseActor(room, session);
  const steps: RoomStep[] = [];
  const bans: RoomStep[] = [];
  const obstacles: Obstacle[] = [];
  const plan = { actor, steps, obstacles, concerned };
  const block = (partner: string, reason: RoomReason) => {
    obstacles.push({ partner, reason });
  };
  const take = (step: RoomStep | undefined) => {
    if (step === undefined) return;
    if (refused.has(nameOf(step))) obstacles.push(...blockAll(concerned, session, "refused"));
    else steps.push(step);
  };

  if (room.unreadable.length > 0) {
    for (const { serverName } of intent.closing) block(serverName, "unreadable_member");
  }
  if (actor === undefined) {
    const isDenied = denialsIn(room);
    const isOpen = (server: string) => (present.get(server)?.length ?? 0) > 0 || !isDenied(server);
    for (const { serverName } of concerned) if (isOpen(serverName)) block(serverName, absence ?? "left");
    return plan;
  }

  if (concerned.length > 0) take(raiseInvite(room, actor, intent));
  for (const { serverName } of concerned) {
    const kept = new Set<RoomReason>();
    const there = new Set(present.get(serverName));
    for (const user of [...there, ...formerOf(room, serverName, intent.own)]) {
      const ban = { kind: "ban", partner: serverName, user } as const;
      if (!mayBan(room.power, actor, user)) {
        if (there.has(user)) kept.add(whyNotBanned(room, actor, user));
      } else if (refused.has(nameOf(ban))) kept.add("refused");
      else bans.push(ban);
    }
    for (const reason of kept) block(serverName, reason);
  }
  const withBans = () => ({ ...plan, steps: [...steps, ...bans] });
  if (bans.length > 0 && bans.length <= BANS_BEFORE_ACL && !isOverrun) return withBans();

  const content = planAcl(room, actor, session, concerned, block);
  if (content !== undefined) take({ kind: "set_acl", content });
  if (bans.length > 0) return withBans();

  const ending = concerned.filter(({ after }) => after === "read_only" || after === "retire");
  const step = ending.length === 0 ? undefined : makeReadOnly(room, actor);
  if (step === undefined) return plan;
  if (!maySend(room.power, actor, "m.room.power_levels")) {
    for (const { serverName } of ending) block(serverName, "not_read_only");
  } else if (steps.every(({ kind }) => kind !== "raise_invite")) {
    // Both steps write the power levels, so that one of them waits until the room was read again.
    take(step);
  }
  return plan;
}

/** Names every partner that the room concerns; all that are closing, or our own server, where it concerns none. */
export function blockAll(concerned: readonly ClosingPartner[], { intent }: RoomsSession, reason: RoomReason) {
  const partners = concerned.length > 0 ? concerned : intent.closing;
  const servers = partners.length > 0 ? partners.map(({ serverName }) => serverName) : [intent.own];
  return servers.map((partner): Obstacle => ({ partner, reason }));
}

export function isClosing(closing: readonly ClosingPartner[], server: string): boolean {
  return closing.some(({ serverName }) => isOneHost(serverName, server));
}

function denialsIn({ acl }: RoomState): (server: string) => boolean {
  return acl === undefined ? () => false : enforcementOf(acl.content);
}

/** The local user with the most power, the operator before others with the same; or why there is none. */
function chooseActor(room: RoomState, { intent, operatorId: operator, tokens: { unusable } }: RoomsSession) {
  const local = joinedByServer(room).get(intent.own) ?? [];
  if (local.length === 0) return { actor: undefined, reason: "left" } as const;
  const usable = local.filter((user) => !unusable.has(user));
  const [best] = byLevel(room.power, usable);
  if (best === undefined) return { actor: undefined, reason: "no_actor" } as const;
  const isAsGood = levelOf(room.power, operator) >= levelOf(room.power, best);
  return { actor: usable.includes(operator) && isAsGood ? operator : best };
}

function raiseInvite(room: RoomState, actor: UserId, { own, closing }: RoomsIntent): RoomStep | undefined {
  const { content } = room.power;
  if (content === undefined || !maySend(room.power, actor, "m.room.power_levels")) return undefined;
  let level = MODERATOR;
  for (const [server, users] of joinedByServer(room)) {
    if (server === own || isClosing(closing, server)) continue;
    for (const user of users) {
      const other = levelOf(room.power, user);
      if (Number.isFinite(other)) level = Math.max(level, other + 1);
    }
  }
  level = Math.min(level, levelOf(room.power, actor), LEVEL_MAX);
  if (inviteLevel(room.power) >= level) return undefined;
  return { kind: "raise_invite", level, content: { ...content, invite: level } };
}

function whyNotBanned(room: RoomState, actor: UserId, user: UserId): RoomReason {
  const { power } = room;
  if (power.privileged.has(user)) return "partner_created";
  if (levelOf(power, actor) < banLevel(power)) return "no_power";
  return "partner_holds_power";
}

function planAcl(
  room: RoomState,
  actor: UserId,
  { intent, clock }: RoomsSession,
  concerned: readonly ClosingPartner[],
  block: (partner: string, reason: RoomReason) => void,
): ServerAcl | undefined {
  const desired = desiredAcl(room, intent);
  if (desired === undefined) return undefined;
  const isAllowed = maySend(room.power, actor, "m.room.server_acl");
  if (room.acl !== undefined && isSameAcl(room.acl.content, desired)) {
    const isLate = joinedAfterAcl(room, intent, clock.now()).length > 0;
    return isLate && isAllowed ? reordered(room.acl.content) : undefined;
  }
  const affected = isOurs(room, intent.own) ? intent.closing : concerned;
  const isDenied = denialsIn(room);
  const stillOpen = affected.map(({ serverName }) => serverName).filter((server) => !isDenied(server));
  const cut = isAllowed ? deniedRetained(room, desired, intent) : [];
  // One that holds nothing but whom the registry admits is sent however long it is.
  const isOverlong = desired.deny.length > 0 && isLong(desired);
  if (isAllowed && cut.length === 0 && !isOverlong) return desired;
  const reason = !isAllowed ? "no_power" : isOverlong ? "acl_too_long" : "would_deny_retained";
  // Where no partner is closing, the servers that the registry does not know are named instead.
  for (const server of stillOpen.length > 0 ? stillOpen : cut) block(server, reason);
  return undefined;
}

/** Servers that must stay and that an ACL would deny, sorted. */
export function deniedRetained(room: RoomState, acl: ServerAcl, intent: RoomsIntent): readonly string[] {
  const joined = [...joinedByServer(room).keys()].filter((server) => !isClosing(intent.closing, server));
  const ours = isOurs(room, intent.own) ? intent.retained : [];
  const isDenied = denialsIn(room);
  // A server that the present ACL denies already loses nothing, unless it is our own.
  const isLost = (server: string) => server === intent.own || !isDenied(server);
  return [...new Set([intent.own, ...ours, ...joined])].filter(enforcementOf(acl)).filter(isLost).sort();
}

/** The ACL that a room is to have; undefined where the one that stands there is right. What it denies stays denied. */
function desiredAcl(room: RoomState, intent: RoomsIntent): ServerAcl | undefined {
  if (!isFederated(room, intent.own)) return undefined;
  const found = room.acl?.content;
  // A room of ours admits exactly whom the registry admits, unless that would cut off somebody who is in it; there, as in
  // a room of others, the present ACL stays and the closing partners are denied.
  if (isOurs(room, intent.own)) {
    const governed = governedAcl(room, intent);
    const cut = deniedRetained(room, governed, intent);
    if (cut.length === 0 || cut.includes(intent.own) || intent.closing.length === 0) return governed;
  }
  const isDenied = denialsIn(room);
  const open = intent.closing.map(({ serverName }) => serverName).filter((server) => !isDenied(server));
  if (open.length === 0) return undefined;
  const strict = withDenied(found, open, intent.own);
  if (deniedRetained(room, strict, intent).length === 0) return strict;
  return { ...strict, allow_ip_literals: found?.allow_ip_literals !== false };
}

/**
 * The ACL of a room of ours, or of one that replaces this room. What was denied stays denied, but for our own server, and
 * where a partner that is closing has set the ACL for all that the registry admits.
 */
export function governedAcl({ acl }: RoomState, intent: RoomsIntent): ServerAcl {
  const isTheirs = acl?.sender !== undefined && isClosing(intent.closing, serverOf(acl.sender as UserId));
  return serverAcl(intent.allow, acl?.content, isTheirs ? intent.allow : [intent.own]);
}

function makeReadOnly(room: RoomState, actor: UserId): RoomStep | undefined {
  const { content } = room.power;
  if (content === undefined) return undefined;
  const level = Math.min(levelOf(room.power, actor), ADMINISTRATOR);
  const raised = readOnly(content, level);
  return raised === undefined ? undefined : { kind: "read_only", level, content: raised };
}

/** Servers that joined after the ACL was set, and may not enforce it: Synapse caches at an invitation that there is none. */
export function joinedAfterAcl(room: RoomState, { own, closing }: RoomsIntent, now: number): ServerName[] {
  const setAt = room.acl?.at;
  if (setAt === undefined || closing.length === 0) return [];
  const isLate = new Map<ServerName, boolean>();
  for (const [user, { membership, at }] of room.members) {
    const server = serverOf(user);
    if (membership !== "join" || server === own || isClosing(closing, server)) continue;
    // A user of it who was there before had every ACL since sent to that server. A time in the future is ignored, so that
    // a server whose clock is ahead is not sent the ACL again and again.
    const joinedLater = at !== undefined && at > setAt && at <= now;
    isLate.set(server, joinedLater && isLate.get(server) !== false);
  }
  return [...isLate].flatMap(([server, late]) => (late ? [server] : [])).sort();
}
