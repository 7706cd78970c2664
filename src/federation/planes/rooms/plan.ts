// What must be done in one room, in which order, and what cannot be done there. Pure.
// Invariants: the order is invite level, bans, ACL, read-only; a ban comes before the ACL, because a member
// who was never banned goes on receiving; nothing is planned that the acting user has no power for; an ACL
// that denies a server whose users stay is never planned; what is so already is not planned again.
import { type ServerName, serverOf, type UserId } from "../../../domain/identifiers.ts";
import { aclAllow, deniedByEnforcement, type ServerAcl, serverAcl } from "./acl.ts";
import { isSameAcl } from "./acl-content.ts";
import type { ClosingPartner, RoomsIntent } from "./intent.ts";
import { cameAfterAcl, inAnotherOrder } from "./newcomers.ts";
import { banLevel, inviteLevel, levelOf, mayBan, maySend, type PowerContent, readOnly } from "./power.ts";
import type { RoomReason } from "./reasons.ts";
import { isFederated, joinedByServer, presentOf, type RoomState } from "./room-state.ts";

export type RoomAct =
  | { readonly kind: "raise_invite"; readonly level: number; readonly content: PowerContent }
  | { readonly kind: "ban"; readonly partner: ServerName; readonly user: UserId }
  | {
      readonly kind: "set_acl";
      readonly content: ServerAcl;
      /** It stands there already; only these servers are to be told of it. */
      readonly newcomers?: readonly ServerName[];
    }
  | { readonly kind: "read_only"; readonly level: number; readonly content: PowerContent };

export interface Obstacle {
  readonly partner: ServerName;
  readonly reason: RoomReason;
}

export interface RoomPlan {
  /** Whoever acts; undefined when nobody can. */
  readonly actor: UserId | undefined;
  /** In order. Behind bans the room is read again before anything else is planned. */
  readonly acts: readonly RoomAct[];
  readonly obstacles: readonly Obstacle[];
  /** Closing partners that the room concerns: now present, or banned from it by us. */
  readonly concerned: readonly ClosingPartner[];
}

export interface PlanContext {
  readonly intent: RoomsIntent;
  readonly operator: UserId;
  /** Closing partners that something was done about in this room before. */
  readonly journaled: ReadonlySet<string>;
  /** Users for whom the homeserver lends no token. */
  readonly unusable: ReadonlySet<UserId>;
  /** Unix time in milliseconds. Absent: nobody is looked for who came after an ACL. */
  readonly now?: number;
}

/** Levels are integers up to this one (Matrix appendices, canonical JSON). */
const LEVEL_MAX = 2 ** 53 - 1;
const MODERATOR = 50;
const ADMINISTRATOR = 100;

/** Whether a room is ours: made by a user of this homeserver. */
export function isOurs(room: RoomState, own: string): boolean {
  return room.creator !== undefined && serverOf(room.creator) === own;
}

export function planRoom(room: RoomState, context: PlanContext): RoomPlan {
  const { intent } = context;
  const present = new Map(intent.closing.map((one) => [one.serverName, presentOf(room, one.serverName)]));
  const concerned = intent.closing.filter(
    ({ serverName }) => (present.get(serverName)?.length ?? 0) > 0 || context.journaled.has(serverName),
  );
  const { actor, reason: absence } = chooseActor(room, context);
  const acts: RoomAct[] = [];
  const obstacles: Obstacle[] = [];
  const block = (partner: string, reason: RoomReason) => {
    obstacles.push({ partner: partner as ServerName, reason });
  };

  if (actor === undefined) {
    const isOpen = (server: string) => (present.get(server)?.length ?? 0) > 0 || !isDenied(room, server);
    for (const { serverName } of concerned) if (isOpen(serverName)) block(serverName, absence ?? "left");
    return { actor, acts, obstacles, concerned };
  }

  if (concerned.length > 0) {
    const raised = raiseInvite(room, actor, intent);
    if (raised !== undefined) acts.push(raised);
  }
  for (const { serverName } of concerned) {
    const kept = new Set<RoomReason>();
    for (const user of present.get(serverName) ?? []) {
      if (mayBan(room.power, actor, user)) {
        acts.push({ kind: "ban", partner: serverName as ServerName, user });
      } else kept.add(whyNotBanned(room, actor, user));
    }
    for (const reason of kept) block(serverName, reason);
  }
  if (acts.some(({ kind }) => kind === "ban")) return { actor, acts, obstacles, concerned };

  const acl = planAcl(room, actor, context, concerned);
  if ("content" in acl) acts.push({ kind: "set_acl", ...acl });
  else for (const one of acl.obstacles) block(one.partner, one.reason);

  const ending = concerned.filter(({ after }) => after === "read_only" || after === "retire");
  const act = ending.length === 0 ? undefined : makeReadOnly(room, actor);
  if (act !== undefined && maySend(room.power, actor, "m.room.power_levels")) acts.push(act);
  else if (act !== undefined) for (const { serverName } of ending) block(serverName, "not_read_only");
  return { actor, acts, obstacles, concerned };
}

function isDenied(room: RoomState, server: string): boolean {
  return room.acl !== undefined && deniedByEnforcement(room.acl.content, server);
}

/**
 * The local user with the most power, the operator before others who have enough; why there is none.
 */
function chooseActor(
  room: RoomState,
  { intent, operator, unusable }: PlanContext,
): { readonly actor: UserId | undefined; readonly reason?: RoomReason } {
  const local = joinedByServer(room).get(intent.own) ?? [];
  if (local.length === 0) return { actor: undefined, reason: "left" };
  const usable = local.filter((user) => !unusable.has(user));
  const level = (user: UserId) => levelOf(room.power, user);
  const [best] = [...usable].sort((a, b) => level(b) - level(a) || (a < b ? -1 : 1));
  if (best === undefined) return { actor: undefined, reason: "no_actor" };
  if (usable.includes(operator) && level(operator) >= level(best)) return { actor: operator };
  return { actor: best };
}

function raiseInvite(room: RoomState, actor: UserId, { own, closing }: RoomsIntent): RoomAct | undefined {
  const { content } = room.power;
  if (content === undefined || !maySend(room.power, actor, "m.room.power_levels")) return undefined;
  const closed = new Set<string>(closing.map(({ serverName }) => serverName));
  let level = MODERATOR;
  for (const [server, users] of joinedByServer(room)) {
    if (server === own || closed.has(server)) continue;
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

/** The ACL that a room should have, and whom it must not deny. */
function planAcl(
  room: RoomState,
  actor: UserId,
  { intent, now }: PlanContext,
  concerned: readonly ClosingPartner[],
):
  | { readonly content: ServerAcl; readonly newcomers?: readonly ServerName[] }
  | { readonly obstacles: readonly Obstacle[] } {
  const closing = intent.closing.map(({ serverName }) => serverName);
  const desired = desiredAcl(room, intent);
  if (desired === undefined) return { obstacles: [] };
  if (isSameAcl(room.acl?.content, desired)) {
    const newcomers = now === undefined ? [] : cameAfterAcl(room, intent, now);
    const content = newcomers.length === 0 ? undefined : inAnotherOrder(namesOf(room));
    return content !== undefined && maySend(room.power, actor, "m.room.server_acl")
      ? { content, newcomers }
      : { obstacles: [] };
  }
  const isOwnRoom = isOurs(room, intent.own);
  const affected = isOwnRoom ? closing : concerned.map(({ serverName }) => serverName);
  const stillOpen = affected.filter((server) => !isDenied(room, server)) as ServerName[];
  const obstacle = (reason: RoomReason) => ({
    obstacles: stillOpen.map((partner) => ({ partner, reason })),
  });
  if (!maySend(room.power, actor, "m.room.server_acl")) return obstacle("no_power");
  const cut = deniedRetained(room, desired, intent);
  if (cut.length === 0) return { content: desired };
  if (stillOpen.length > 0) return obstacle("would_deny_retained");
  // Nobody is closing: whoever the registry does not know is named instead.
  return {
    obstacles: cut.map((server) => ({ partner: server as ServerName, reason: "would_deny_retained" })),
  };
}

/** Servers that must stay and that an ACL would deny, sorted. */
export function deniedRetained(room: RoomState, acl: ServerAcl, intent: RoomsIntent): readonly string[] {
  const closing = new Set<string>(intent.closing.map(({ serverName }) => serverName));
  const joined = [...joinedByServer(room).keys()].filter((server) => !closing.has(server));
  const ours = isOurs(room, intent.own) ? intent.retained : [];
  return (
    [...new Set([intent.own, ...ours, ...joined])]
      .filter((server) => deniedByEnforcement(acl, server))
      // What denies it already is not made worse, unless it is ourselves.
      .filter((server) => server === intent.own || !isDenied(room, server))
      .sort()
  );
}

/** Ours: exactly whom the registry admits. Somebody else's: what stands there, less the closing partners. */
function desiredAcl(room: RoomState, intent: RoomsIntent): ServerAcl | undefined {
  if (!isFederated(room, intent.own)) return undefined;
  if (isOurs(room, intent.own)) return serverAcl(intent.allow);
  const closing = intent.closing.map(({ serverName }) => serverName);
  if (closing.every((server) => isDenied(room, server))) return undefined;
  const open = closing.filter((server) => !isDenied(room, server));
  return withDenied(room, open, intent);
}

/** The room's own ACL with more servers denied, and with our own name so that it can be sent. */
function withDenied(room: RoomState, servers: readonly string[], intent: RoomsIntent): ServerAcl {
  const found = namesOf(room);
  const deny = [...new Set([...found.deny, ...aclAllow(servers)])].sort();
  const allow = found.allow.includes("*")
    ? found.allow
    : [...new Set([...found.allow, ...aclAllow([intent.own])])].sort();
  const strict = { allow, deny, allow_ip_literals: false };
  return deniedRetained(room, strict, intent).length === 0
    ? strict
    : { ...strict, allow_ip_literals: found.allow_ip_literals };
}

function namesOf(room: RoomState): ServerAcl {
  if (room.acl === undefined) return { allow: ["*"], deny: [], allow_ip_literals: true };
  const { allow, deny, allow_ip_literals } = room.acl.content;
  const names = (list: unknown) =>
    Array.isArray(list) ? list.filter((name): name is string => typeof name === "string") : [];
  return { allow: names(allow), deny: names(deny), allow_ip_literals: allow_ip_literals !== false };
}

function makeReadOnly(room: RoomState, actor: UserId): RoomAct | undefined {
  const { content } = room.power;
  if (content === undefined) return undefined;
  const level = Math.min(levelOf(room.power, actor), ADMINISTRATOR);
  const raised = readOnly(content, level);
  return raised === undefined ? undefined : { kind: "read_only", level, content: raised };
}
