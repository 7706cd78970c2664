// The real parts that an agent's identity is proved on: where its card is served, and what the bridge says.
import { resolve } from "node:path";
import { fetchCard } from "../../cards/fetch.ts";
import type { Clock } from "../../domain/clock.ts";
import { PublicationFile } from "../../rendered-files/publication-file.ts";
import { parseYaml } from "../../runtime/load-yaml.ts";
import type { FederationConfig } from "../config.ts";
import { CardAudit } from "../planes/card/card-audit.ts";
import { CARD_PUBLICATION, cardRender } from "../planes/card/render.ts";
import type { Registry } from "../registry/partner.ts";
import type { AgentParts } from "./proof.ts";

export function agentParts({ card, directory }: FederationConfig, clock: Clock): AgentParts {
  const fetch: AgentParts["fetch"] = (url) => fetchCard(url, { clock });
  if (card === undefined) return { fetch, clock };
  const audit = new CardAudit(resolve(directory, card.bridgeAuditFile));
  return {
    fetch,
    clock,
    decision: async (agent) => {
      const last = (await audit.lastDecisions())?.get(agent);
      if (last === undefined) return undefined;
      return { accepted: last.outcome === "accepted", fingerprint: last.target.fingerprint };
    },
  };
}

/** Where an agent's card is public; undefined when this deployment publishes none, or not this one. */
export function publishedCardUrl(
  { gateway }: FederationConfig,
  registry: Registry,
  agent: string,
): string | undefined {
  const text = cardRender.render(registry).get(CARD_PUBLICATION) ?? "";
  const { cards } = parseYaml(PublicationFile, text, `rendered/${CARD_PUBLICATION}`);
  const card = Object.hasOwn(cards, agent) ? cards[agent] : undefined;
  if (gateway === undefined || card === undefined) return undefined;
  return `${gateway.url.replace(/\/+$/, "")}${card.cardPath}`;
}
