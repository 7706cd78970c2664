// Who may ask an agent, by its entry in agents.yaml. Servers and users are compared exactly.
import { type GhostMxid, parseUserId, serverOf, type UserId } from "../../domain/identifiers.ts";
import type { AgentEntry, CardIdentity } from "../../rendered-files/agents-file.ts";
import type { AgentsSnapshot } from "./loaded-agents.ts";

export function allowsAnybody({ allowedServers, allowedSenders }: AgentEntry): boolean {
  return allowedServers.length > 0 && allowedSenders.length > 0;
}

/** Whether an entry has an identity and allows somebody to ask; else its target is quarantined. */
export function isPinned(entry: AgentEntry): entry is AgentEntry & { readonly cardIdentity: CardIdentity } {
  return entry.cardIdentity !== undefined && allowsAnybody(entry);
}

/** Whether a user may ask this agent: the server must be listed, and the user or all users of that server. */
export function isSenderAllowed(entry: AgentEntry, sender: UserId): boolean {
  const server = serverOf(sender);
  return (
    entry.allowedServers.includes(server) &&
    (entry.allowedSenders.includes(sender) || entry.allowedSenders.includes(`*:${server}`))
  );
}

export function serversAllowed({ byGhost }: AgentsSnapshot): ReadonlySet<string> {
  return new Set([...byGhost.values()].flatMap(({ entry }) => entry.allowedServers));
}

/** Whether a message to a ghost's device is taken: anybody can send such messages, and each of them is kept. */
export function isTakenFrom(sender: unknown, ghost: GhostMxid, allowed: ReadonlySet<string>): boolean {
  const user = parseUserId(sender);
  return user !== undefined && (serverOf(user) === serverOf(ghost) || allowed.has(serverOf(user)));
}
