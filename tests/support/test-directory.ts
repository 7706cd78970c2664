// A directory of agents that a test states in a line each, checked as agents.yaml would be.

import type { AgentsSnapshot, AgentTarget } from "../../src/bridge/agents/directory.ts";
import { parseAgentId } from "../../src/domain/identifiers.ts";
import { AgentEntry, targetFingerprint } from "../../src/rendered-files/agents-file.ts";
import { ghost } from "./ledger.ts";

// The public key of RFC 7515, appendix A.3.
const IDENTITY = {
  keyId: "key-1",
  jwk: {
    kty: "EC",
    crv: "P-256",
    x: "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
    y: "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
  },
};

export interface TestAgent {
  readonly senders?: readonly string[];
  readonly servers?: readonly string[];
  readonly displayName?: string;
  readonly pinned?: boolean;
}

/** The agents by their names in agents.yaml; change the record and the directory has changed. */
export function testDirectory(agents: Readonly<Record<string, TestAgent>>): {
  current(): Promise<AgentsSnapshot>;
} {
  return {
    current: async () => ({
      revision: 1,
      byGhost: new Map(Object.entries(agents).map(([name, agent]) => [ghost(name), target(name, agent)])),
    }),
  };
}

function target(name: string, agent: TestAgent): AgentTarget {
  const agentId = parseAgentId(name);
  if (agentId === undefined) throw new Error(`not an agent's name: ${name}`);
  const entry = AgentEntry.parse({
    cardUrl: `https://agents.test/${name}/card`,
    ...(agent.pinned !== false && { cardIdentity: IDENTITY }),
    allowedServers: agent.servers ?? ["a.test"],
    allowedSenders: agent.senders ?? ["*:a.test"],
    ...(agent.displayName !== undefined && { displayName: agent.displayName }),
  });
  return { agentId, ghost: ghost(name), entry, fingerprint: targetFingerprint(agentId, entry) };
}
