// JSON of other servers, users and agents, bounded in its nesting where it comes in.
// Invariant: what parseOutsideJson returns can be serialised, cloned to another thread, and walked by recursion; the
// first of them fails at about 3,000 levels.
import { JSON_DEPTH_MAX } from "./strict-json.ts";

/**
 * How deep a parsed value is at most. An event or a message stands a few levels down in what carries it, so one from
 * which something was cut off is still deeper than JSON_DEPTH_MAX, and `isTooDeep` finds it.
 */
const KEPT_DEPTH = 2 * JSON_DEPTH_MAX;

/**
 * Parses JSON; each list and object below 256 levels is replaced by `null`, so that the rest can be used.
 * @throws SyntaxError
 */
export function parseUntrustedJson(text: string): unknown {
  const value: unknown = JSON.parse(text);
  return isDeeperThan(value, KEPT_DEPTH) ? cutBelow(value, KEPT_DEPTH) : value;
}

/** Whether an event, a message or an answer is nested deeper than JSON_DEPTH_MAX: it counts as malformed. */
export function isTooDeep(value: unknown): boolean {
  return isDeeperThan(value, JSON_DEPTH_MAX);
}

function isDeeperThan(value: unknown, levels: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  if (levels === 0) return true;
  const inner: readonly unknown[] = Array.isArray(value) ? value : Object.values(value);
  return inner.some((one) => isDeeperThan(one, levels - 1));
}

function cutBelow(value: unknown, levels: number): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (levels === 0) return null;
  if (Array.isArray(value)) return value.map((one) => cutBelow(one, levels - 1));
  // As JSON.parse does, `fromEntries` makes a member named `__proto__` a member like any other.
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, cutBelow(one, levels - 1)]));
}
