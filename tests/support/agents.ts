// Agents for tests: agents.yaml as an operator writes it, its entries, and directories of agents in a line
// each.
import type { AgentsSnapshot, AgentTarget } from "../../src/bridge/agents/loaded-agents.ts";
import {
  type AgentId,
  type GhostMxid,
  ghostOf,
  parseAgentId,
  type ServerName,
} from "../../src/domain/identifiers.ts";
import { AgentEntry, AgentsFile, targetFingerprint } from "../../src/rendered-files/agents-file.ts";
import { parseYaml } from "../../src/runtime/load-yaml.ts";
import type { TestKey } from "./cards.ts";

export interface YamlAgent {
  /** Absent: no cardIdentity. */
  readonly key?: TestKey | undefined;
  readonly cardUrl?: string;
  readonly displayName?: string;
  readonly allowedSenders?: string;
}

/** The file as an operator writes it. */
export function agentsYaml(agents: Readonly<Record<string, YamlAgent>>): string {
  const lines = ["version: 1", "agents:"];
  for (const [name, { key, cardUrl, displayName, allowedSenders }] of Object.entries(agents)) {
    lines.push(`  ${name}:`, `    cardUrl: ${cardUrl ?? "http://127.0.0.1:1/card"}`);
    if (key !== undefined) {
      lines.push("    cardIdentity:", `      keyId: ${key.keyId}`, "      jwk:");
      lines.push(
        "        kty: EC",
        "        crv: P-256",
        `        x: "${key.jwk.x}"`,
        `        y: "${key.jwk.y}"`,
      );
    }
    lines.push("    allowedServers: [a.test]", `    allowedSenders: ${allowedSenders ?? '["*:a.test"]'}`);
    if (displayName !== undefined) lines.push(`    displayName: ${displayName}`);
  }
  if (lines.length === 2) lines[1] = "agents: {}";
  return `${lines.join("\n")}\n`;
}

/** A parsed entry, pinned to this key. */
export function agentEntry(key: TestKey | undefined, changes: Partial<AgentEntry> = {}): AgentEntry {
  const { docs } = parseYaml(AgentsFile, agentsYaml({ docs: { key } }), "agents.yaml").agents;
  if (docs === undefined) throw new TypeError("no such agent");
  return { ...docs, ...changes };
}

export function agentTarget(key: TestKey | undefined, changes: Partial<AgentEntry> = {}): AgentTarget {
  const agentId = "docs" as AgentId;
  const entry = agentEntry(key, changes);
  const ghost = ghostOf("agent_", agentId, "a.test" as ServerName);
  return { agentId, ghost, entry, fingerprint: targetFingerprint(agentId, entry) };
}

const ghostNamed = (name: string) => `@agent_${name}:a.test` as GhostMxid;

/** An agent as agents.yaml would configure it, without a pin of its own. */
export function namedTarget(name: string): AgentTarget {
  return {
    agentId: name as AgentId,
    ghost: ghostNamed(name),
    fingerprint: `sha256:${"0".repeat(64)}`,
    entry: {
      cardUrl: "http://127.0.0.1:1/card",
      allowedOrigins: [],
      allowedServers: ["a.test"],
      allowedSenders: ["*:a.test"],
      rate: { perMinute: 60, burst: 20 },
      pollInterval: 2_000,
    },
  };
}

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
      partnerGhosts: [],
      byGhost: new Map(
        Object.entries(agents).map(([name, agent]) => [ghostNamed(name), target(name, agent)]),
      ),
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
  return { agentId, ghost: ghostNamed(name), entry, fingerprint: targetFingerprint(agentId, entry) };
}
