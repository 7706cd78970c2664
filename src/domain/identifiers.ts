// Matrix and Drawbridge identifiers as branded types, each beside its parser (Matrix specification, appendices,
// "Identifier grammar"). Invariant: a branded value was checked once, at the edge; inside, nothing is a bare string.
import { sha256, sha256Tagged } from "./digest.ts";

declare const brand: unique symbol;
type Branded<Name extends string> = string & { readonly [brand]: Name };

export type ServerName = Branded<"ServerName">;
export type RoomId = Branded<"RoomId">;
export type EventId = Branded<"EventId">;
export type UserId = Branded<"UserId">;
export type DeviceId = Branded<"DeviceId">;
/** A user ID inside the bridge's own namespace. Every ghost is a user. */
export type GhostMxid = UserId & { readonly ghost: true };
/** The name of an agent's entry in agents.yaml; a ghost's localpart is the prefix plus this. */
export type AgentId = Branded<"AgentId">;
/** A homeserver transaction ID for an outgoing event, unique across the whole appservice. */
export type TransactionId = Branded<"TransactionId">;

// Matrix limits every identifier to 255 bytes. Control characters and spaces never belong in one,
// and a NUL could not be stored at all.
const MAX_IDENTIFIER_BYTES = 255;
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what it refuses
const FORBIDDEN = /[\u0000-\u0020\u007f\ud800-\udfff]/u;

export const SERVER_NAME = /^(?:\[[0-9A-Fa-f:.]{2,45}\]|[0-9A-Za-z.-]{1,230})(?::[0-9]{1,5})?$/;
const AGENT_ID = /^[a-z0-9][a-z0-9._-]{0,63}$/;
const USER_LOCALPART = /^[^:\s]+$/u;

function isBounded(value: string): boolean {
  return Buffer.byteLength(value, "utf8") <= MAX_IDENTIFIER_BYTES && !FORBIDDEN.test(value);
}

/** For IDs of which only the length matters, such as those of sessions. */
export const isId = (value: unknown): value is string =>
  typeof value === "string" && value.length <= MAX_IDENTIFIER_BYTES;

export function parseServerName(value: unknown): ServerName | undefined {
  return typeof value === "string" && SERVER_NAME.test(value) ? (value as ServerName) : undefined;
}

/** Only the sigil is required: room IDs of room version 12 and later have no server part. */
function withSigil(sigil: string, value: unknown): value is string {
  return typeof value === "string" && value.length > 1 && value.startsWith(sigil) && isBounded(value);
}

export function parseRoomId(value: unknown): RoomId | undefined {
  return withSigil("!", value) ? (value as RoomId) : undefined;
}

export function parseEventId(value: unknown): EventId | undefined {
  return withSigil("$", value) ? (value as EventId) : undefined;
}

export function parseUserId(value: unknown): UserId | undefined {
  if (!withSigil("@", value)) return undefined;
  const colon = value.indexOf(":");
  if (colon < 2 || !USER_LOCALPART.test(value.slice(1, colon))) return undefined;
  return parseServerName(value.slice(colon + 1)) === undefined ? undefined : (value as UserId);
}

/**
 * A member of a room. Homeservers have some with names that the grammar does not allow, and none may be overlooked: such a
 * name is replaced by its digest, behind a space, so that it is no other member's.
 */
export function parseMember(value: unknown): UserId | undefined {
  if (typeof value !== "string") return undefined;
  const server = parseServerName(serverOf(value as UserId)) ?? "invalid";
  return parseUserId(value) ?? (`@ ${sha256(value).toString("hex")}:${server}` as UserId);
}

export function parseAgentId(value: unknown): AgentId | undefined {
  return typeof value === "string" && AGENT_ID.test(value) ? (value as AgentId) : undefined;
}

/** The server part of a user ID: everything after the first colon, the port included. */
export function serverOf(user: UserId): ServerName {
  return user.slice(user.indexOf(":") + 1) as ServerName;
}

const VISIBLE_MAX = 512;

/**
 * An identifier in visible ASCII, as records hold it: what the grammar excludes and homeservers allow is percent-encoded,
 * and `%` is as well. What would be longer than a record's field is given by its digest.
 */
export function visibleId(id: string): string {
  const visible = id.replaceAll(/[^\x21-\x24\x26-\x7e]+/gu, (part) =>
    encodeURIComponent(part.toWellFormed()),
  );
  return visible.length <= VISIBLE_MAX ? visible : sha256Tagged(id);
}

/** The room that a record names by `visibleId`; undefined where it names none, or only a digest. */
export function roomOfVisibleId(visible: string): RoomId | undefined {
  return visible.startsWith("!") ? (decodeURIComponent(visible) as RoomId) : undefined;
}

export const localpartOf = (user: UserId): string => user.slice(1, user.indexOf(":"));

export function ghostOf(prefix: string, agent: AgentId, server: ServerName): GhostMxid {
  return `@${prefix}${agent}:${server}` as GhostMxid;
}

/** The host of a server name, in lower case, an IPv6 literal in brackets. Room ACLs compare hosts alone, without ports. */
export const serverHost = (server: string): string => server.replace(/:[0-9]{1,5}$/, "").toLowerCase();

/** The same without a final dot, which makes another name of it, for every list that names one, and leads to the same place. */
export const hostReached = (server: string): string => serverHost(server).replace(/\.+$/, "");

/** Whether a host is an IP literal, which a room ACL with `allow_ip_literals: false` refuses. */
export function isIpLiteral(host: string): boolean {
  if (host.startsWith("[")) return true;
  const parts = host.split(".");
  return parts.length === 4 && parts.every((part) => /^[0-9]{1,3}$/.test(part) && Number(part) <= 255);
}
