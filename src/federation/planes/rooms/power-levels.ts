// Power in a room (Matrix client-server API, m.room.power_levels): who may do what, by which level.
// Invariants: from room version 12 on the creators are above every level and cannot be brought below it;
// a level that is no number counts as its default, as homeservers count it.
import type { UserId } from "../../../domain/identifiers.ts";

export type PowerContent = Readonly<Record<string, unknown>>;

export interface Power {
  /** Content of m.room.power_levels; undefined when the room has none. */
  readonly content: PowerContent | undefined;
  readonly creator: UserId | undefined;
  /** Creators whom no level binds: room version 12 and later. */
  readonly privileged: ReadonlySet<string>;
}

/** A level above every one that can be written. */
export const CREATOR_LEVEL = Number.POSITIVE_INFINITY;

export function levelOf(power: Power, user: string): number {
  if (power.privileged.has(user)) return CREATOR_LEVEL;
  if (power.content === undefined) return user === power.creator ? 100 : 0;
  const users = record(power.content["users"]);
  return numberOr(users[user], numberOr(power.content["users_default"], 0));
}

/** The level that sending a state event needs. */
export function stateLevel(power: Power, type: string): number {
  if (power.content === undefined) return 0;
  return numberOr(record(power.content["events"])[type], numberOr(power.content["state_default"], 50));
}

export function banLevel(power: Power): number {
  return numberOr(power.content?.["ban"], 50);
}

export function inviteLevel(power: Power): number {
  return numberOr(power.content?.["invite"], 0);
}

/** Whether one user may ban another. */
export function mayBan(power: Power, actor: string, target: string): boolean {
  const level = levelOf(power, actor);
  return level >= banLevel(power) && level > levelOf(power, target);
}

export function maySend(power: Power, actor: string, type: string): boolean {
  return levelOf(power, actor) >= stateLevel(power, type);
}

/** Message types whose own level lets people write below a level of `events_default`. */
const STATE_TYPES = /^m\.(?:room\.(?!message$|encrypted$|redaction$)|space\.)/;

/** The levels of a room in which nobody below `level` can write; undefined when they are so already. */
export function readOnly(content: PowerContent, level: number): PowerContent | undefined {
  const events = record(content["events"]);
  const raised = Object.fromEntries(
    Object.entries(events).map(([type, value]) => [
      type,
      STATE_TYPES.test(type) ? value : Math.max(level, numberOr(value, 0)),
    ]),
  );
  const before = numberOr(content["events_default"], 0);
  const isUnchanged =
    before >= level && Object.entries(raised).every(([type, value]) => value === events[type]);
  return isUnchanged ? undefined : { ...content, events: raised, events_default: Math.max(level, before) };
}

export function record(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : {};
}

function numberOr(value: unknown, otherwise: number): number {
  if (typeof value === "number" && Number.isFinite(value)) return value;
  // Before room version 10 a level could be written as text.
  if (typeof value === "string" && /^\s*[+-]?[0-9]{1,15}\s*$/.test(value)) return Number(value);
  return otherwise;
}
