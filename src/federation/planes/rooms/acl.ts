// The content of m.room.server_acl (Matrix client-server API), and whom homeservers that enforce it deny.
// Invariant: every server is named with its port and without, because enforcement strips the port while the check
// against locking oneself out does not.
import * as z from "zod";
import { DrawbridgeError } from "../../../domain/errors.ts";
import { isIpLiteral, serverHost } from "../../../domain/identifiers.ts";

/** What this organisation writes, and what the journal keeps of an ACL that was found. */
export const ServerAcl = z.strictObject({
  allow: z.array(z.string()).readonly(),
  deny: z.array(z.string()).readonly(),
  allow_ip_literals: z.boolean(),
});
export type ServerAcl = z.output<typeof ServerAcl>;

/** An ACL found in a room, whose content others may have written. */
export type FoundAcl = Readonly<Partial<Record<keyof ServerAcl, unknown>>>;

/** Servers in both forms, with their port and without, sorted and without duplicates. */
export function aclAllow(servers: readonly string[]): string[] {
  return [...new Set(servers.flatMap((server) => [server, serverHost(server)]))].sort();
}

/** Synapse takes an event of 65,536 bytes at most. */
const ACL_BYTES_MAX = 60_000;
const NAME_MAX = 255;

export const isLong = (acl: ServerAcl): boolean => Buffer.byteLength(JSON.stringify(acl)) > ACL_BYTES_MAX;

/**
 * The ACL of a room of ours: it admits the servers of `rooms.json`, and denies what the room denies already; where an event
 * does not hold that, those of `allow` that it denies, which is the same. @param spared servers that it does not deny
 */
export function serverAcl(allow: readonly string[], found?: FoundAcl, spared: readonly string[] = []) {
  const hosts = spared.map(serverHost);
  const deny = aclNames(found).deny.filter((name) => !hosts.some(matcherOf([name])));
  const acl = { allow: [...allow], deny, allow_ip_literals: false };
  const isDenied = matcherOf(deny);
  return isLong(acl) ? { ...acl, deny: allow.filter((name) => isDenied(serverHost(name))) } : acl;
}

/** The ACL that stands in a room with more servers denied, and with our own name so that it can be sent. */
export function withDenied(found: FoundAcl | undefined, servers: readonly string[], own: string): ServerAcl {
  const names = aclNames(found);
  return {
    allow: names.allow.includes("*") ? names.allow : sortedNames([...names.allow, ...aclAllow([own])]),
    deny: sortedNames([...names.deny, ...aclAllow(servers)]),
    allow_ip_literals: false,
  };
}

/** The ACL that stands in a room less our denial of one server. @param before names that were denied before ours */
export function withoutDenied(found: FoundAcl, server: string, before: readonly string[]): ServerAcl {
  const names = aclNames(found);
  const ours = new Set(aclAllow([server]).filter((name) => !before.includes(name)));
  return { ...names, deny: names.deny.filter((name) => !ours.has(name)) };
}

export const deniedByEnforcement = (acl: FoundAcl, server: string): boolean => enforcementOf(acl)(server);

/** @throws DrawbridgeError `unsafe_acl` naming the servers of `retained`, own one included, that it would deny */
export function refuseUnsafeAcl(acl: ServerAcl, retained: readonly string[]): void {
  const denied = enforcementOf(acl);
  const cut = retained.filter((server) => denied(server));
  if (cut.length === 0) return;
  const named = `${cut.slice(0, 5).join(", ")}${cut.length > 5 ? ", …" : ""}`;
  const what = `this room ACL would deny ${cut.length} that must stay: ${named}`;
  const hint = "Nothing was sent. Render the registry again, and compare its rooms.json with the ACL.";
  throw new DrawbridgeError("unsafe_acl", what, { hint });
}

/** Compiles an ACL once, for many servers: true means denied. */
export function enforcementOf(acl: FoundAcl): (server: string) => boolean {
  const allowed = matcherOf(acl.allow);
  const denied = matcherOf(acl.deny);
  const literals = acl.allow_ip_literals !== false;
  return (server) => {
    const host = serverHost(server);
    if (!literals && isIpLiteral(host)) return true;
    return denied(host) || !allowed(host);
  };
}

function matcherOf(list: unknown): (host: string) => boolean {
  const names = new Set<string>();
  const globs: string[][][] = [];
  for (const entry of Array.isArray(list) ? list : []) {
    if (typeof entry !== "string") continue;
    // Homeservers compare without case by Unicode's simple case folding, in which a long s is an s.
    const glob = entry.toLowerCase().replaceAll("\u017f", "s").replaceAll(/\*+/g, "*");
    if (!/[*?]/.test(glob)) names.add(glob);
    // A longer one, whose stars have something between them, asks for more than any server's name has.
    else if (glob.length <= 2 * NAME_MAX + 1) globs.push(glob.split("*").map((part) => part.split("")));
  }
  return (host) => names.has(host) || globs.some((glob) => matchesGlob(glob, host));
}

/** `*`, between the parts, is any run of characters, `?` any one. Each part is taken where it first fits: no glob is slow. */
function matchesGlob([head = [], ...parts]: readonly string[][], text: string): boolean {
  const fits = (part: readonly string[], at: number) =>
    part.every((unit, index) => unit === "?" || unit === text[at + index]);
  const tail = parts.pop();
  if (tail === undefined) return head.length === text.length && fits(head, 0);
  let at = head.length;
  const end = text.length - tail.length;
  if (at > end || !fits(head, 0) || !fits(tail, end)) return false;
  for (const part of parts) {
    while (at + part.length <= end && !fits(part, at)) at++;
    at += part.length;
  }
  return at <= end;
}

/** A found ACL with nothing but names in it, sorted. An absent `allow` admits nobody; an absent ACL everybody. */
export function aclNames(acl: FoundAcl | undefined): ServerAcl {
  const { allow = [], deny = [], allow_ip_literals: literals } = acl ?? { allow: ["*"] };
  return { allow: sortedNames(allow), deny: sortedNames(deny), allow_ip_literals: literals !== false };
}

export function isSameAcl(found: FoundAcl | undefined, desired: ServerAcl): boolean {
  if (found === undefined) return false;
  const all = { allow: namesIn(found.allow).sort(), deny: namesIn(found.deny).sort() };
  return JSON.stringify({ ...aclNames(found), ...all }) === JSON.stringify(aclNames(desired));
}

/** The same ACL in another order: a homeserver makes no event of content that the room has already. */
export function reordered(found: FoundAcl): ServerAcl | undefined {
  const [allow, deny] = [namesIn(found.allow), namesIn(found.deny)];
  if (allow.length <= 1 && deny.length <= 1) return undefined;
  const rotated = ([first = "", ...rest]: readonly string[]) => [...rest, first];
  const order = allow.length > 1 ? { allow: rotated(allow), deny } : { allow, deny: rotated(deny) };
  return { ...order, allow_ip_literals: found.allow_ip_literals !== false };
}

/** Without what is longer than any server name: a homeserver may be unable to compile it, and then judges nothing in the room. */
function sortedNames(list: unknown): string[] {
  const names = namesIn(list).filter((name) => name.length <= NAME_MAX);
  return names.sort();
}

function namesIn(list: unknown): string[] {
  const names = Array.isArray(list) ? list.filter((name): name is string => typeof name === "string") : [];
  return [...new Set(names)];
}
