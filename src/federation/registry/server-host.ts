// Server names as room ACLs see them: without their port, whatever their case.
// Invariant: two servers with one host cannot be told apart by any room ACL (Matrix client-server API,
// m.room.server_acl: the port is stripped before matching).

/** The host of a server name, in lower case; an IPv6 literal keeps its brackets. */
export function serverHost(server: string): string {
  return server.replace(/:[0-9]{1,5}$/, "").toLowerCase();
}

/** Whether a host is an IP literal, which an ACL with `allow_ip_literals: false` refuses. */
export function isIpLiteral(host: string): boolean {
  if (host.startsWith("[")) return true;
  const parts = host.split(".");
  return parts.length === 4 && parts.every((part) => /^[0-9]{1,3}$/.test(part) && Number(part) <= 255);
}
