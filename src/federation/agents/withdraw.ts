// Takes one agent away between us and one partner: its entry here; or, for an agent of ours, the partner's right to invoke
// it. Invariants: nothing else of the partner changes; a pin that goes is retired, unless the agent is merely removed.
import { DrawbridgeError } from "../../domain/errors.ts";
import { AgentsFile } from "../../rendered-files/agents-file.ts";
import { InvocationFile } from "../../rendered-files/gateway-files.ts";
import type { ChangeBase } from "../change/change-base.ts";
import type { Proposal } from "../change/commit-change.ts";
import { CARD_AGENTS } from "../planes/card/render.ts";
import { GATEWAY_INVOCATION } from "../planes/gateway/render.ts";
import { renderedFile } from "../planes/plane.ts";
import type { Federation } from "../reconcile/context.ts";
import { type DesiredState, desiredPlane } from "../reconcile/desired-state.ts";
import { applicantsOf, findPartner, partnerEntry, type Registry } from "../registry/partner.ts";
import type { Seal } from "../workflow/observe-plane.ts";
import { WITHDRAW_OFFERED, WITHDRAW_PINNED } from "../workflow/procedures.ts";
import { type AgentParts, askBridge, commitIdentity, partsOf, proveIdentity } from "./commit-and-prove.ts";
import { agentOf, consumerOf, retireEdits } from "./identity-rules.ts";

/** `keepsKey`: the agent goes and nothing is said against its key, which may be pinned again. */
type WithdrawOptions = Readonly<{ partner?: string; agent: string; keepsKey?: boolean }>;

/** `pinned`: its agent, which our bridge carries; `offered`: ours, which it may invoke. @throws DrawbridgeError `usage` for both */
function kindOf(registry: Registry, { partner, agent }: WithdrawOptions) {
  const { consumes, file, partner: entry } = consumerOf(registry, partner);
  const isOffered = entry?.gateway?.invokes.includes(agent) === true;
  if (!Object.hasOwn(consumes, agent)) return isOffered ? "offered" : "gone";
  if (!isOffered) return "pinned";
  // The same command again would take the other one away.
  const what = `${file} both consumes an agent ${agent} and may invoke ours of that name; nothing was changed`;
  throw new DrawbridgeError("usage", what, {
    hint: "Take the one that is to stay out of that file until the other is withdrawn (card.consumes, gateway.invokes), and commit.",
  });
}

/** What is to be committed; undefined when it is gone already. @throws DrawbridgeError `usage` */
function proposeWithdrawal(base: ChangeBase, options: WithdrawOptions): Proposal | undefined {
  const { registry } = base;
  const { agent } = options;
  const kind = kindOf(registry, options);
  if (kind === "gone") return undefined;
  const consumer = consumerOf(registry, options.partner);
  const message = (what: string) =>
    `${what} ${consumer.serverName}\n\nOf one agent alone: planes 1 to 3 are untouched.\n`;
  if (kind === "offered") {
    const { file, partner } = findPartner(registry, consumer.serverName);
    const kept = (partner.gateway?.invokes ?? []).filter((one) => one !== agent);
    const edits = [{ path: ["gateway", "invokes"], value: kept }];
    return { file, edits, message: message(`Let ${agent} be invoked no more by`) };
  }
  const { cardIdentity } = agentOf(consumer, agent);
  const isKept = cardIdentity === undefined || options.keepsKey === true;
  const retiring = isKept ? [] : retireEdits(base, consumer, agent, cardIdentity);
  const edits = [{ path: [...consumer.path, agent], value: undefined }, ...retiring];
  return { file: consumer.file, edits, message: message(`${actOf(options)} ${agent} of`) };
}

const actOf = ({ keepsKey }: WithdrawOptions) => (keepsKey === true ? "Remove" : "Withdraw");

/** @throws DrawbridgeError `usage` when neither we nor the partner ever knew the agent; and what committing throws */
export async function withdrawAgent(context: Federation, parts: AgentParts, options: WithdrawOptions) {
  const { agent } = options;
  const propose = (base: ChangeBase) => proposeWithdrawal(base, options);
  const committed = await commitIdentity(context, { reason: "drawbridge: withdraw", propose });
  const { registry } = committed.base;
  const kind = kindOf(registry, options);
  const consumer = consumerOf(registry, options.partner);
  const { serverName } = consumer;
  const pin = kind === "pinned" ? agentOf(consumer, agent).cardIdentity : undefined;
  const isOurs = Object.hasOwn(registry.organisation.agents, agent);
  // Where no bridge is managed that would know it, the branch says whether it was taken away before.
  const earlier = () => context.repository.committedAs(`${actOf(options)} ${agent} of ${serverName}`);
  const known = kind === "gone" && !isOurs ? await (parts.decision ?? earlier)(agent) : "ours";
  if (known === "unreadable") {
    const what = "the bridge's audit file cannot be read; nothing was changed";
    throw new DrawbridgeError("config_unreadable", what, {
      hint: `Let this user read the file of card.bridgeAuditFile: it says whether ${serverName} had such an agent here.`,
    });
  }
  if (known === undefined) {
    const hint = "Name an agent that its file consumes or invokes; nothing was changed.";
    throw new DrawbridgeError("usage", `${serverName} has no agent ${JSON.stringify(agent)} here`, { hint });
  }
  return proveIdentity(context, committed, {
    act: options.keepsKey === true ? "remove" : "withdraw",
    ...{ agent, partner: serverName, keyId: null, oldKeyId: pin?.keyId ?? null },
    procedure: isOurs && kind !== "pinned" ? WITHDRAW_OFFERED : WITHDRAW_PINNED,
    parts: partsOf(parts),
    observe: async (seal, plane, { desired }) => {
      if (plane === "gateway") return [notInvoked(desired, agent, serverName, seal)];
      const shown = notCarried(desired, agent, seal);
      // Of an agent that its file does not name, the bridge need not have decided anything.
      const more = shown.verdict === "closed" ? { undecided: "not_in_agents_file" } : {};
      return [shown, ...(await askBridge(parts, { agent, seal, wanted: "quarantined" }, more))];
    },
  });
}

/** What the gateway has in force, by its own digest, has the partner's client, and those with which it had applied, out of this agent. */
function notInvoked(desired: DesiredState, agent: string, serverName: string, seal: Seal) {
  const { agents } = renderedFile(desiredPlane(desired, "gateway"), GATEWAY_INVOCATION, InvocationFile).value;
  const clients = agents[agent]?.clients;
  const isIn = (client = "") => clients?.includes(client) === true;
  const isAzpIn = isIn(partnerEntry(desired.registry, serverName)?.partner.azp);
  const isOut = !isAzpIn && !applicantsOf(desired.registry, { serverName }).some((one) => isIn(one.clientId));
  const closed = clients === undefined ? "no_route" : "azp_not_admitted";
  const { digest } = desired.planes.gateway;
  return seal({
    ...{ probe: "callers_of_agent", layer: "gateway", verdict: isOut ? "closed" : "open" },
    ...{ reason: isOut ? closed : isAzpIn ? "azp_admitted" : "applicant_admitted", references: [digest] },
  });
}

function notCarried(desired: DesiredState, agent: string, seal: Seal) {
  const { agents } = renderedFile(desiredPlane(desired, "card"), CARD_AGENTS, AgentsFile).value;
  const isOut = !Object.hasOwn(agents, agent);
  return seal({
    ...{ probe: "agents_file", layer: "bridge", verdict: isOut ? "closed" : "open" },
    ...{ reason: isOut ? "not_in_agents_file" : "in_agents_file", references: [desired.planes.card.digest] },
  });
}
