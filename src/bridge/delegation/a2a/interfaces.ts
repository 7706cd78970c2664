// Which of a card's interfaces the bridge calls. Invariants: JSON-RPC and HTTP+JSON only, protocol 1.0
// before 0.3, the card's own order otherwise; never a URL with credentials in it, and never plain HTTP for
// an agent whose card came by HTTPS: the bearer token would travel in the clear.
import type { AgentCard } from "../../../cards/agent-card.ts";

/** What the bridge reads of a verified card. */
export type PeerCard = Pick<AgentCard, "supportedInterfaces" | "capabilities">;

export interface ChosenInterface {
  readonly url: string;
  readonly binding: "JSONRPC" | "HTTP+JSON";
  readonly version: "1.0" | "0.3";
  readonly tenant: string;
}

function versionOf(declared: string): ChosenInterface["version"] | undefined {
  if (/^1(\.[0-9]{1,3}){0,2}$/.test(declared)) return "1.0";
  return /^0\.3(\.[0-9]{1,3})?$/.test(declared) ? "0.3" : undefined;
}

function bindingOf(declared: string): ChosenInterface["binding"] | undefined {
  const upper = declared.toUpperCase();
  return upper === "JSONRPC" || upper === "HTTP+JSON" ? upper : undefined;
}

function isSaneUrl(text: string, cardUrl: string): boolean {
  if (!URL.canParse(text) || !URL.canParse(cardUrl)) return false;
  const url = new URL(text);
  if (url.username !== "" || url.password !== "" || url.hash !== "" || url.hostname === "") return false;
  if (url.protocol === "https:") return true;
  return url.protocol === "http:" && new URL(cardUrl).protocol === "http:";
}

/** The interface to call; undefined when the card offers none that the bridge speaks. */
export function chooseInterface(card: PeerCard, cardUrl: string): ChosenInterface | undefined {
  const usable: ChosenInterface[] = [];
  for (const offered of card.supportedInterfaces) {
    const binding = bindingOf(offered.protocolBinding);
    const version = versionOf(offered.protocolVersion);
    if (binding === undefined || version === undefined || !isSaneUrl(offered.url, cardUrl)) continue;
    usable.push({ url: offered.url, binding, version, tenant: offered.tenant ?? "" });
  }
  return usable.find((offered) => offered.version === "1.0") ?? usable[0];
}
