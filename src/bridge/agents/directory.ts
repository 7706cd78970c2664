// Which agents have a ghost, and who may ask them: what the rest of the bridge reads of agents.yaml.
// Invariants: a snapshot never changes; identities are compared exactly; a fingerprint names one agent at
// one address under one pinned key, so that a decision about another pin is never taken for this one's.

import { type AgentId, type GhostMxid, serverOf, type UserId } from "../../domain/identifiers.ts";
import type { AgentEntry, CardIdentity } from "../../rendered-files/agents-file.ts";

/** An agent as configured. */
export interface AgentTarget {
  readonly agentId: AgentId;
  readonly ghost: GhostMxid;
  readonly entry: AgentEntry;
  /** `sha256:…` over the agent's name, card address and pinned identity. */
  readonly fingerprint: string;
}

export interface AgentsSnapshot {
  readonly byGhost: ReadonlyMap<GhostMxid, AgentTarget>;
  /** Grows by one with each version of the file that was taken up. */
  readonly revision: number;
}

export interface AgentDirectory {
  /** The agents as the file says now; those of its last good version when it cannot be used. */
  current(): Promise<AgentsSnapshot>;
  /** Calls the listener after each change; returns how to stop that. */
  onChange(listener: (snapshot: AgentsSnapshot) => void): () => void;
  close(): Promise<void>;
}

/** A pin holds only with an identity and with somebody who may ask; else the target is quarantined. */
export function isPinned(entry: AgentEntry): entry is AgentEntry & { readonly cardIdentity: CardIdentity } {
  return (
    entry.cardIdentity !== undefined && entry.allowedServers.length > 0 && entry.allowedSenders.length > 0
  );
}

/** Whether a user may ask this agent: the server must be listed, and the user or all users of that server. */
export function isSenderAllowed(entry: AgentEntry, sender: UserId): boolean {
  const server = serverOf(sender);
  return (
    entry.allowedServers.includes(server) &&
    (entry.allowedSenders.includes(sender) || entry.allowedSenders.includes(`*:${server}`))
  );
}
