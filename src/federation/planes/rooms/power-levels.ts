// Who may do what in a room by its power levels (m.room.power_levels, Matrix client-server API). Pure.
// Invariant: a level that is no number counts as its default, as homeservers count it.
import type { UserId } from "../../../domain/identifiers.ts";
import { isObject, membersOf, type UnknownObject } from "../../../domain/json.ts";

interface Power {
  readonly content: UnknownObject | undefined;
  readonly creator: UserId | undefined;
  /** Creators whom no level binds: room version 12 and later. */
  readonly privileged: ReadonlySet<string>;
}

export function levelOf(power: Power, user: string): number {
  if (power.privileged.has(user)) return Number.POSITIVE_INFINITY;
  if (power.content === undefined) return user === power.creator ? 100 : 0;
  const users = membersOf(power.content["users"]);
  return numberOr(users[user], numberOr(power.content["users_default"], 0));
}

export const banLevel = (power: Power): number => numberOr(power.content?.["ban"], 50);
export const inviteLevel = (power: Power): number => numberOr(power.content?.["invite"], 0);

export function mayBan(power: Power, actor: string, target: string): boolean {
  const level = levelOf(power, actor);
  return level >= banLevel(power) && level > levelOf(power, target);
}

export function maySend(power: Power, actor: string, type: string): boolean {
  const { content } = power;
  if (content === undefined) return levelOf(power, actor) >= 0;
  const needed = numberOr(membersOf(content["events"])[type], numberOr(content["state_default"], 50));
  return levelOf(power, actor) >= needed;
}

export function byLevel(power: Power, users: readonly UserId[]): UserId[] {
  return users.toSorted((a, b) => levelOf(power, b) - levelOf(power, a) || (a < b ? -1 : 1));
}

/** Message types whose own level lets people write below a level of `events_default`. */
const STATE_TYPES = /^m\.(?:room\.(?!message$|encrypted$|redaction$)|space\.)/;

/** The levels of a room in which nobody below `level` can write; undefined when they are so already. */
export function readOnly(content: UnknownObject, level: number): UnknownObject | undefined {
  const events = membersOf(content["events"]);
  const atLeast = (value: unknown) => Math.max(level, numberOr(value, 0));
  const raised = Object.fromEntries(
    Object.entries(events).map(([type, value]) => [type, STATE_TYPES.test(type) ? value : atLeast(value)]),
  );
  const events_default = atLeast(content["events_default"]);
  const isRaised = Object.entries(raised).some(([type, value]) => value !== events[type]);
  if (!isRaised && numberOr(content["events_default"], 0) >= level) return undefined;
  return { ...content, events: raised, events_default };
}

function numberOr(value: unknown, otherwise: number): number {
  if (typeof value === "number" && Number.isFinite(value)) return value;
  // Before room version 10 a level could be written as text.
  if (typeof value === "string" && /^\s*[+-]?[0-9]{1,15}\s*$/.test(value)) return Number(value);
  return otherwise;
}

/** Levels as homeservers take them: before room version 10 others may have written text or fractions, before 6 any number. */
export function withIntegers(content: unknown): UnknownObject {
  const members = Object.entries(membersOf(content)).map(([name, value]) => {
    if (isObject(value)) return [name, withIntegers(value)];
    const level = numberOr(value, Number.NaN);
    const integer = Math.min(Math.max(Math.trunc(level), Number.MIN_SAFE_INTEGER), Number.MAX_SAFE_INTEGER);
    return [name, Number.isNaN(level) ? value : integer];
  });
  return Object.fromEntries(members);
}

/** Whether no level binds a room's creators. */
export function hasPrivilegedCreators(version: string): boolean {
  return Number(version) >= 12 || version.startsWith("org.matrix.hydra.");
}
