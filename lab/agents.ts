// The agents that an organisation's bridge carries: its own and its partner's, and those that fed:agent has added.
// Invariant: nothing is recorded about an added agent; the bridge's agents.yaml says which there are.
import { DrawbridgeError } from "../src/domain/errors.ts";
import { type AgentId, type GhostMxid, ghostOf } from "../src/domain/identifiers.ts";
import { AgentsFile } from "../src/rendered-files/agents-file.ts";
import { parseYaml } from "../src/runtime/load-yaml.ts";
import { readIfPresent } from "../src/runtime/write-file.ts";
import { agentsOf, GHOST_PREFIX, serviceEndpoints } from "./endpoints.ts";
import type { Lab } from "./lab.ts";
import type { CompleteOrganisation } from "./organisations.ts";

export interface CarriedAgent {
  readonly agentId: AgentId;
  readonly ghost: GhostMxid;
  readonly cardUrl: string;
  /** Undefined of an agent that was added. */
  readonly publisher: CompleteOrganisation | undefined;
}

/** The organisation's own agent, its partner's, then the added ones in the order of the file. */
export function carriedAgents(lab: Lab, organisation: CompleteOrganisation): readonly CarriedAgent[] {
  const carried = (agentId: AgentId, cardUrl: string, publisher?: CompleteOrganisation): CarriedAgent => ({
    ...{ agentId, cardUrl, publisher },
    ghost: ghostOf(GHOST_PREFIX, agentId, lab.serverNames[organisation]),
  });
  const published = agentsOf(organisation).map(({ agentId, publisher }) =>
    carried(agentId, serviceEndpoints(lab, publisher).cardUrl, publisher),
  );
  const added = Object.entries(agentsIn(lab.paths.organisation(organisation).agentsFile))
    .filter(([name]) => published.every(({ agentId }) => agentId !== name))
    .map(([name, { cardUrl }]) => carried(name as AgentId, cardUrl));
  return [...published, ...added];
}

/** None before the lab was first started, nor while the file cannot be used. */
function agentsIn(file: string): AgentsFile["agents"] {
  try {
    return parseYaml(AgentsFile, readIfPresent(file) ?? "", file).agents;
  } catch (error) {
    if (error instanceof DrawbridgeError) return {};
    throw error;
  }
}
