// Plane 4 as files: the bridge's agents.yaml, the gateway's publication.yaml, the public keys of our own cards.
// Invariants: an agent of a partner whose card plane is closed has no entry, and no list of any entry names that
// partner; a card that nobody may consume is not published.
import { jsonText } from "../../../domain/json.ts";
import type { AgentsFile } from "../../../rendered-files/agents-file.ts";
import type { PublicationFile } from "../../../rendered-files/gateway-files.ts";
import { serverOfSender } from "../../registry/cross-checks.ts";
import type { KubernetesTarget, OfferedAgent } from "../../registry/organisation.ts";
import type { Partner, Registry } from "../../registry/partner.ts";
import { type Plain, yamlFile } from "../emit-yaml.ts";
import { agentRoute, configMap, resourceName } from "../kubernetes.ts";
import { admittedServers, openPartners, type PlaneRender, type RenderedFiles } from "../plane.ts";

export const CARD_AGENTS = "card/agents.yaml";
export const CARD_PUBLICATION = "card/publication.yaml";
const CARD_KEYS = "card/card-keys.json";

export const cardRender: PlaneRender = {
  render: (registry) =>
    new Map([
      [CARD_AGENTS, agentsOf(registry)],
      [CARD_PUBLICATION, publicationOf(registry)],
      [CARD_KEYS, keysOf(registry)],
    ]),
  kubernetes: cardKubernetes,
};

function agentsOf(registry: Registry): string {
  const own = registry.organisation.serverName;
  const admitted = admittedServers(registry, "card");
  const among = new Set(admitted);
  const entryFor = (servers: readonly string[]) => {
    return ([name, entry]: [string, Consumed]): [string, Plain] => [name, entryOf(entry, servers, among)];
  };
  const entries = Object.entries(registry.organisation.consumes).map(entryFor(admitted));
  for (const { partner } of openPartners(registry, "card")) {
    // A partner's agent may be asked by its own users and by ours unless more are named: no other partner acts
    // with our client's access.
    const both = [own, partner.serverName].sort();
    entries.push(...Object.entries(partner.card.consumes).map(entryFor(both)));
  }
  entries.sort(([a], [b]) => (a < b ? -1 : 1));
  // Whatever is closed to it: a partner that is removed may have ghosts in rooms that are left.
  const partnerGhosts = registry.partners.map(({ partner: { serverName, ghostPrefix } }) => {
    return { server: serverName, prefix: ghostPrefix };
  });
  const file = { version: 1, partnerGhosts, agents: Object.fromEntries(entries) };
  return yamlFile(file satisfies Record<keyof AgentsFile, Plain>);
}

type Consumed = Partner["card"]["consumes"][string];

function entryOf(entry: Consumed, defaultServers: readonly string[], admitted: ReadonlySet<string>): Plain {
  const { cardUrl, allowedOrigins, cardIdentity, allowedServers, allowedSenders, pollInterval, ...rest } =
    entry;
  return {
    cardUrl,
    allowedOrigins: allowedOrigins.length === 0 ? undefined : allowedOrigins,
    cardIdentity,
    allowedServers: allowedServers?.filter((server) => admitted.has(server)) ?? defaultServers,
    allowedSenders:
      allowedSenders?.filter((sender) => admitted.has(serverOfSender(sender))) ??
      defaultServers.map((server) => `*:${server}`),
    ...rest,
    pollInterval: pollInterval % 1_000 === 0 ? `${pollInterval / 1_000}s` : `${pollInterval}ms`,
  };
}

export function publishedAgents(registry: Registry): readonly (readonly [string, OfferedAgent])[] {
  const invoked = openPartners(registry, "card").flatMap(({ partner }) => partner.gateway?.invokes ?? []);
  const consumed = new Set(invoked);
  return Object.entries(registry.organisation.agents)
    .filter(([name, { publish }]) => publish === "always" || (publish !== "never" && consumed.has(name)))
    .sort(([a], [b]) => (a < b ? -1 : 1));
}

function publicationOf(registry: Registry): string {
  const cards = publishedAgents(registry).map(([name, { upstream, upstreamCardPath, cardPath }]) => {
    return [name, { upstream, upstreamCardPath, cardPath } satisfies PublicationFile["cards"][string]];
  });
  return yamlFile({ version: 1, cards: Object.fromEntries(cards) });
}

const keysIn = ({ cardKeys }: OfferedAgent) => cardKeys.map(({ keyId, jwk }) => ({ ...jwk, kid: keyId }));

/** A JWK Set (RFC 7517) an agent: what partners compare their pins with. */
function keysOf(registry: Registry): string {
  const agents = Object.entries(registry.organisation.agents)
    .filter(([, { cardKeys }]) => cardKeys.length > 0)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, agent]) => [name, { keys: keysIn(agent) }] as const);
  return jsonText({ agents: Object.fromEntries(agents) });
}

function cardKubernetes(files: RenderedFiles, registry: Registry, target: KubernetesTarget) {
  const routes = publishedAgents(registry).flatMap(([agent, { upstream, upstreamCardPath, cardPath }]) => {
    const to = { type: "exact", method: "GET", path: cardPath, rewrite: upstreamCardPath } as const;
    // No token is checked here: one that comes all the same is not passed on, nor who the caller says to be.
    const rule = { ...to, remove: ["authorization", "x-azp"] };
    const { route, backends } = agentRoute(target, resourceName("card", agent), upstream, [rule]);
    return [route, ...backends];
  });
  return {
    "card/agents.yaml": [configMap("drawbridge-agents", { "agents.yaml": files.get(CARD_AGENTS) })],
    "card/card-keys.yaml": [configMap("drawbridge-card-keys", { "card-keys.json": files.get(CARD_KEYS) })],
    "card/routes.yaml": routes,
  };
}
