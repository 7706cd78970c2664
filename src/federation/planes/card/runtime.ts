// Plane 4 on the real parts: which cards the gateway publishes, whose cards the bridge trusts, as its health resource
// (/readyz) and its audit file say. Invariants: each file counts as applied only when its program says so by its digest;
// neither is left out for want of the other.
import { open } from "node:fs/promises";
import { resolve } from "node:path";
import * as z from "zod";
import type { Clock } from "../../../domain/clock.ts";
import { sha256Tagged } from "../../../domain/digest.ts";
import { DrawbridgeError } from "../../../domain/errors.ts";
import { Sha256Digest } from "../../../domain/identifier-fields.ts";
import { parseJson } from "../../../domain/json.ts";
import type { EvidenceItem } from "../../../records/format/evidence-item.ts";
import { AgentsFile } from "../../../rendered-files/agents-file.ts";
import { mapConcurrent, pollUntil } from "../../../runtime/concurrency.ts";
import { requestJson } from "../../../runtime/http.ts";
import { parseYaml } from "../../../runtime/load-yaml.ts";
import type { FederationConfig } from "../../config.ts";
import { resourceUrl } from "../../homeserver/api.ts";
import { serverOfSender } from "../../registry/cross-checks.ts";
import { type PartnerEntry, planeState } from "../../registry/partner.ts";
import { applyProgramFile, gatewayFile, type ProgramFile, programDrift } from "../file-target.ts";
import {
  type DesiredPlane,
  observer,
  openPartners,
  outcomeOf,
  type PlaneRuntime,
  renderedText,
  unmanagedPlane,
} from "../plane.ts";
import { CARD_AGENTS, CARD_PUBLICATION } from "./render.ts";

type CardConfig = Pick<FederationConfig, "card" | "directory" | "gateway">;

export function cardRuntime(config: CardConfig, clock: Clock): PlaneRuntime {
  const { gateway, card, directory } = config;
  const files = [
    ...(gateway ? [gatewayFile("publication", CARD_PUBLICATION, gateway, directory, clock)] : []),
    ...(card ? [bridgeFile(card, directory, clock)] : []),
  ];
  if (files.length === 0) return unmanagedPlane("card");
  return {
    async apply(desired, note) {
      const texts = files.map((file) => ({ file, text: renderedText(desired, file.path) }));
      // All files are written first: each program loads its own while the other is waited for.
      const apply = (one: (typeof texts)[number]) => applyProgramFile(one.file, one.text, note);
      return outcomeOf(await mapConcurrent(texts, texts.length, apply));
    },

    drift: (desired) => programDrift(files, desired),

    // Agents that were withdrawn since a removal was opened are covered.
    async probe(desired, partner, covering = []) {
      const observe = observer(clock, "card", partner.partner.serverName);
      const one = { config, desired, partner, clock, covering, observe };
      return [...(await ourCards(one)), ...(await theirCards(one)), ...(await whoMayAsk(one))];
    },
  };
}

const TIMEOUT_MS = 5_000;
const AUDITED = { withinMs: 3_000, everyMs: 100 };

interface Probing {
  readonly config: CardConfig;
  readonly desired: DesiredPlane;
  readonly partner: PartnerEntry;
  readonly clock: Clock;
  readonly covering: readonly string[];
  readonly observe: ReturnType<typeof observer>;
}

/** Each agent of ours that the partner could invoke. A card that stays public for others says so. */
async function ourCards({ config, desired, partner, observe, covering }: Probing): Promise<EvidenceItem[]> {
  const { gateway } = config;
  if (gateway === undefined) return [];
  const { registry } = desired;
  const items: EvidenceItem[] = [];
  for (const agent of new Set([...(partner.partner.gateway?.invokes ?? []), ...covering])) {
    const offered = registry.organisation.agents[agent];
    if (offered === undefined) continue;
    const stays = (): string => {
      if (offered.publish === "always") return "published_always";
      const others = openPartners(registry, "card").filter((other) => other.name !== partner.name);
      const consumed = others.some((other) => other.partner.gateway?.invokes.includes(agent));
      return consumed && offered.publish === "while_consumed" ? "consumed_by_others" : "card_public";
    };
    const item = await observe("card_fetch", "gateway", agent, async () => {
      const url = resourceUrl(gateway.url, offered.cardPath);
      const answer = await requestJson(url, { timeoutMs: TIMEOUT_MS }).catch(() => undefined);
      if (answer === undefined) return { verdict: "unknown", reason: "gateway_unavailable" };
      const { status } = answer;
      if (status === 200) return { status, verdict: "open", reason: stays() };
      if (status !== 404) return { status, verdict: "unknown", reason: "unexpected_status" };
      const reason = offered.publish === "never" ? "never_published" : "card_withdrawn";
      return { status, verdict: "closed", reason };
    });
    items.push(item);
  }
  return items;
}

async function theirCards(probing: Probing): Promise<EvidenceItem[]> {
  const { config, desired, partner, clock, observe, covering } = probing;
  const withdrawn = covering.filter((agent) => desired.registry.organisation.agents[agent] === undefined);
  const agents = [...new Set([...Object.keys(partner.partner.card.consumes), ...withdrawn])];
  if (config.card === undefined || agents.length === 0) return [];
  const inForce = await bridgeAgentsDigest(config.card.bridgeHealthUrl);
  const isDesired = inForce === sha256Tagged(desired.files.get(CARD_AGENTS) ?? "");
  const isClosed = planeState(partner.partner, "card") === "closed";
  const audit = resolve(config.directory, config.card.bridgeAuditFile);
  // The bridge writes its audit a moment after it has loaded the file.
  const within = isClosed && isDesired ? AUDITED : { withinMs: 0, everyMs: 0 };
  const read = () => lastCardDecisions(audit);
  const decisions = await pollUntil(clock, within, read, (last) =>
    agents.every((agent) => last?.get(agent)?.outcome !== "accepted"),
  );
  const observing = agents.map((agent) =>
    observe("card_trust", "bridge", agent, async () => {
      if (decisions === undefined) return { verdict: "unknown", reason: "audit_unreadable" };
      const decision = decisions.get(agent);
      const references = inForce !== undefined && isDesired ? [inForce] : [];
      if (decision !== undefined) {
        const { outcome, reason, target } = decision;
        const verdict = outcome === "rejected" ? "closed" : "open";
        return { verdict, reason, references: [target.fingerprint, ...references] };
      }
      if (!isClosed || !isDesired) return { verdict: "unknown", reason: "never_decided", references };
      // The bridge has never checked this card, and by its file in force it never will.
      return { verdict: "closed", reason: "not_in_agents_file", references };
    }),
  );
  return Promise.all(observing);
}

/** Whether the agents.yaml that the bridge has in force lets the partner's users ask any agent. */
async function whoMayAsk({ config, desired, partner, observe }: Probing): Promise<EvidenceItem[]> {
  const { serverName } = partner.partner;
  const text = desired.files.get(CARD_AGENTS);
  if (config.card === undefined || text === undefined) return [];
  const { agents } = parseYaml(AgentsFile, text, `rendered/${CARD_AGENTS}`);
  const mayAsk = Object.values(agents).some(
    ({ allowedServers, allowedSenders }) =>
      allowedServers.includes(serverName) && allowedSenders.some((one) => serverOfSender(one) === serverName),
  );
  // An open plane admits nobody by itself: the lists of each agent may leave the partner out.
  if (!mayAsk && planeState(partner.partner, "card") === "open") return [];
  const inForce = await bridgeAgentsDigest(config.card.bridgeHealthUrl);
  const item = await observe("may_ask", "bridge", serverName, async () => {
    if (inForce === undefined) return { verdict: "unknown", reason: "bridge_not_running" };
    const references = [inForce];
    if (inForce !== sha256Tagged(text)) return { verdict: "unknown", reason: "not_in_force", references };
    if (mayAsk) return { verdict: "open", reason: "in_agents_file", references };
    return { verdict: "closed", reason: "not_in_agents_file", references };
  });
  return [item];
}

const HEALTH_TIMEOUT_MS = 2_000;
/** The bridge reads its file at every request; a second request is needed only when it is just starting. */
const IN_FORCE = { withinMs: 5_000, everyMs: 50 };

const Health = z.object({ agents: z.object({ digest: z.string() }) });

/** Digest of the agents.yaml in force; undefined when no bridge answers. It need not be ready otherwise. */
async function bridgeAgentsDigest(healthUrl: string): Promise<string | undefined> {
  const bounds = { timeoutMs: HEALTH_TIMEOUT_MS, bytesMax: 1_048_576 };
  const answer = await requestJson(healthUrl, bounds).catch(() => undefined);
  return Health.safeParse(answer?.body).data?.agents.digest;
}

type Bridge = NonNullable<FederationConfig["card"]>;

function bridgeFile({ agentsFile, bridgeHealthUrl }: Bridge, directory: string, clock: Clock): ProgramFile {
  const ask = () => bridgeAgentsDigest(bridgeHealthUrl);
  return {
    ...{ path: CARD_AGENTS, name: "agents", absent: "bridge_not_running" },
    target: resolve(directory, agentsFile),
    digest: ask,
    async untilInForce(text) {
      const wanted = sha256Tagged(text);
      const found = await pollUntil(clock, IN_FORCE, ask, (one) => one === undefined || one === wanted);
      if (found === undefined || found === wanted) return found !== undefined;
      throw new DrawbridgeError("program_failed", "the bridge has another agents.yaml in force", {
        hint: "Compare card.agentsFile with agentsFile in bridge.yaml; the bridge's log says at agents_file_rejected why it refuses one.",
      });
    },
  };
}

const SCHEMA = "svc.agent_card.v1";

const CardDecision = z.object({
  schema: z.literal(SCHEMA),
  outcome: z.enum(["accepted", "rejected"]),
  reason: z.enum(["agent_card_verified", "agent_card_untrusted"]),
  target: z.object({ agent: z.string(), fingerprint: z.literal("none").or(Sha256Digest) }),
});
type CardDecision = z.output<typeof CardDecision>;

/** The last decision on each agent's card, by the bridge's audit file; undefined when that cannot be read. */
export async function lastCardDecisions(file: string) {
  const last = new Map<string, CardDecision>();
  try {
    const handle = await open(file);
    for await (const line of handle.readLines()) {
      // Most lines are about delegations.
      if (!line.includes(SCHEMA)) continue;
      const { data } = CardDecision.safeParse(parseJson(line));
      if (data !== undefined) last.set(data.target.agent, data);
    }
    return last;
  } catch {
    return undefined;
  }
}
