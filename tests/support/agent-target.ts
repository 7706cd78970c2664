// An agent as agents.yaml would configure it.
import type { AgentTarget } from "../../src/bridge/agents/directory.ts";
import type { AgentId, GhostMxid } from "../../src/domain/identifiers.ts";

export function agentTarget(name: string): AgentTarget {
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
