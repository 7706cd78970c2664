// agents.yaml and its entries for tests.
import type { AgentTarget } from "../../src/bridge/agents/directory.ts";
import { type AgentId, type GhostMxid, ghostOf, type ServerName } from "../../src/domain/identifiers.ts";
import { type AgentEntry, AgentsFile, targetFingerprint } from "../../src/rendered-files/agents-file.ts";
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

/** An agent as agents.yaml would configure it, without a pin of its own. */
export function namedTarget(name: string): AgentTarget {
  return {
    agentId: name as AgentId,
    ghost: `@agent_${name}:a.test` as GhostMxid,
    fingerprint: `sha256:${"0".repeat(64)}`,
    entry: {
      cardUrl: "http://127.0.0.1:1/card",
      allowedServers: ["a.test"],
      allowedSenders: ["*:a.test"],
      rate: { perMinute: 60, burst: 20 },
      pollInterval: 2_000,
    },
  };
}
