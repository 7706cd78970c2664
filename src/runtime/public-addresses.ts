// Connections to addresses of the public internet alone. Invariant: the address that is checked is the one that is
// connected to, so that a name whose address changes between a check and the connection gains nothing.
import { BlockList, isIP, type LookupFunction } from "node:net";
import { lookupBy, type Resolve, resolveShared } from "./name-lookups.ts";

/**
 * Networks that are not the public internet's (IANA special-purpose address registries), and multicast; 6to4 addresses and
 * their relays among them, since each stands for an IPv4 address, which may be any.
 */
const NOT_PUBLIC = [
  "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24",
  "192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/3",
  "2001::/23 2001:db8::/32 2002::/16 3fff::/20",
].flatMap((networks) => networks.split(" "));

const blocked = new BlockList();
for (const [network = "", prefix] of NOT_PUBLIC.map((one) => one.split("/"))) {
  blocked.addSubnet(network, Number(prefix), network.includes(":") ? "ipv6" : "ipv4");
}

/** The IPv6 addresses assigned to the public internet, and those that stand for an IPv4 address and are judged as it. */
const mayBePublic = new BlockList();
mayBePublic.addSubnet("2000::", 3, "ipv6");
mayBePublic.addSubnet("::ffff:0:0", 96, "ipv6");

/** Code of the error with which a connection to an address that is not public fails. */
export const NOT_PUBLIC_CODE = "ERR_ADDRESS_NOT_PUBLIC";

function notPublic(): NodeJS.ErrnoException {
  return Object.assign(new Error("the host has no public address"), { code: NOT_PUBLIC_CODE });
}

/** Whether an IP address is one of the public internet. False for anything that is no IP address. */
export function isPublicAddress(address: string): boolean {
  const family = isIP(address);
  if (family === 4) return !blocked.check(address, "ipv4");
  return family === 6 && mayBePublic.check(address, "ipv6") && !blocked.check(address, "ipv6");
}

/** The IP address that a URL names as its host; undefined when it names a host by name. */
export function addressIn(url: string): string | undefined {
  const host = new URL(url).hostname.replace(/^\[(.*)\]$/, "$1");
  return isIP(host) === 0 ? undefined : host;
}

/** @throws an error with the code NOT_PUBLIC_CODE when the URL's host is an address, and not a public one */
export function assertPublicHost(url: string): void {
  const address = addressIn(url);
  if (address !== undefined && !isPublicAddress(address)) throw notPublic();
}

/** A `lookup` without addresses that are not public. A host that is an address itself is for `assertPublicHost`. */
export const publicLookup = (resolver: Resolve = resolveShared): LookupFunction =>
  lookupBy(resolver, (found) => {
    const usable = found.filter(({ address }) => isPublicAddress(address));
    if (usable.length === 0) throw notPublic();
    return usable;
  });
