// JSON values as strict readers give them. Objects have no prototype, so that a member named
// `__proto__` or `constructor` is a member like any other.

export type Json = null | boolean | number | string | readonly Json[] | JsonObject;
export interface JsonObject {
  readonly [name: string]: Json;
}

export type UnknownObject = Readonly<Record<string, unknown>>;

export function isObject(value: unknown): value is UnknownObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Like `Array.isArray`, for lists that are read-only. */
export function isList<T>(value: T): value is Extract<T, readonly unknown[]> {
  return Array.isArray(value);
}

/** An empty object to be filled; its type turns read-only when it is passed on. */
export const emptyObject = (): Record<string, Json> => Object.create(null) as Record<string, Json>;

/** A JSON pointer one step further (RFC 6901). */
export function pointer(parent: string, step: string | number): string {
  return `${parent}/${String(step).replaceAll("~", "~0").replaceAll("/", "~1")}`;
}

export const jsonText = (value: unknown): string => `${JSON.stringify(value, null, 2)}\n`;

/** An object's members; none of anything else. */
export const membersOf = (value: unknown): UnknownObject => (isObject(value) ? value : {});

/** A text of this program's own, or of one beside it, as parsed JSON; undefined when it is none. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
