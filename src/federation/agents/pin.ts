// An agent is added to our bridge with the key that its operator hands over; an entry pins a new identity, and the old one is
// retired; or one agent is withdrawn between us and a partner. Invariants: what an address serves is verified before an agent
// is added; a pin is replaced only by name; a retired key is never pinned; a pin that goes is retired, unless the agent is
// merely removed; what was pinned, and the last card that a pin has verified, are remembered beyond a kill or a rotation.

import * as z from "zod";
import { DrawbridgeError } from "../../domain/errors.ts";
import { AgentsFile, CardIdentity } from "../../rendered-files/agents-file.ts";
import { InvocationFile } from "../../rendered-files/gateway-files.ts";
import { type ChangeBase, type Proposal, proposeEdit } from "../change/commit-change.ts";
import { CARD_AGENTS } from "../planes/card/render.ts";
import { GATEWAY_INVOCATION } from "../planes/gateway/render.ts";
import { renderedFile } from "../planes/plane.ts";
import type { Federation } from "../reconcile/context.ts";
import { type DesiredState, desiredPlane } from "../reconcile/desired-state.ts";
import { ORGANISATION_FILE } from "../registry/organisation.ts";
import { consumersOf, findPartner, partnerEntry, type Registry } from "../registry/partner.ts";
import type { PinnedIdentity } from "../registry/retired-identities.ts";
import type { Seal } from "../workflow/observe-plane.ts";
import { WITHDRAW_OFFERED, WITHDRAW_PINNED } from "../workflow/procedure.ts";
import {
  type AgentParts,
  commitIdentity,
  isSignedByPin,
  partsOf,
  proveByBridge,
  proveIdentity,
  provePin,
  verifyByPin,
} from "./commit-and-prove.ts";
import {
  cardIdentityOf,
  consumedAgent,
  consumerOf,
  isSameIdentity,
  refuse,
  refuseRetired,
  retireEdits,
} from "./identity-rules.ts";

export interface AddOptions {
  readonly agent: string;
  readonly cardUrl: string;
  readonly identity: PinnedIdentity;
  readonly allowedOrigins: readonly string[];
}

/** Undefined when the agent is there already, at this address, under this key, with these origins. @throws DrawbridgeError */
async function proposeAddition(base: ChangeBase, options: AddOptions): Promise<Proposal | undefined> {
  const { registry } = base;
  const { agent, cardUrl, identity, allowedOrigins } = options;
  const taken = consumersOf(registry).find(({ consumes }) => Object.hasOwn(consumes, agent));
  if (taken !== undefined) {
    const present = consumedAgent(taken, agent);
    const isSame =
      present.cardUrl === cardUrl &&
      isSameIdentity(present.cardIdentity, identity) &&
      allowedOrigins.every((origin) => present.allowedOrigins.includes(origin));
    if (isSame && taken.file === ORGANISATION_FILE) return undefined;
    throw refuse("agent_present", `${taken.file} has an agent ${agent} already`);
  }
  refuseRetired(registry, identity, registry.organisation.retired.cardKeys);
  const entry = {
    cardUrl,
    ...(allowedOrigins.length > 0 && { allowedOrigins }),
    cardIdentity: cardIdentityOf(identity),
  };
  const edits = [{ path: ["consumes", agent], value: entry }];
  const message = `Add ${agent}\n\nKey ${identity.keyId}. Planes 1 to 3 are untouched.\n`;
  return proposeEdit(base, ORGANISATION_FILE, edits, message);
}

/** Adds an agent. @throws DrawbridgeError `guard_refused`, `agent_unavailable`, `head_refused`; RegistryError */
export async function addAgent(context: Federation, parts: AgentParts, options: AddOptions) {
  const { agent, cardUrl, identity } = options;
  const served = await parts.fetch(cardUrl);
  if (!served.fetched) {
    const what = `there is no card at ${cardUrl} (${served.failure}); nothing was changed`;
    throw new DrawbridgeError("agent_unavailable", what, {
      hint: "Start the agent, and name the address of its card: it usually ends with /.well-known/agent-card.json.",
    });
  }
  const verdict = await verifyByPin(served.bytes, identity);
  if (!verdict.accepted) {
    const why = `${verdict.reason} at ${verdict.at || "/"}`;
    throw refuse("unverified_card", `the card does not verify by ${identity.keyId}: ${why}`);
  }
  const propose = (base: ChangeBase) => proposeAddition(base, options);
  const committed = await commitIdentity(context, { reason: "drawbridge: add agent", propose });
  return provePin(context, committed, parts, {
    ...{ act: "add", agent, partner: committed.base.registry.organisation.serverName, cardUrl },
    ...{ old: undefined, fresh: identity, oldCards: [], served },
  });
}

interface PinOptions {
  readonly partner: string;
  readonly agent: string;
  readonly identity: PinnedIdentity;
  readonly replaces?: string | undefined;
  /** A card that the key pinned before has signed, where none was kept. */
  readonly oldCard?: Uint8Array | undefined;
}

async function proposePin(base: ChangeBase, options: PinOptions): Promise<Proposal | undefined> {
  const { agent, identity, replaces } = options;
  const { registry } = base;
  const consumer = consumerOf(registry, options.partner);
  const current = consumedAgent(consumer, agent).cardIdentity;
  if (isSameIdentity(current, identity)) return undefined;
  refuseRetired(registry, identity, consumer.retired);
  if (current !== undefined && current.keyId !== replaces) {
    throw refuse("pinned_jwk", `${agent} is pinned to ${current.keyId} already`);
  }
  const edits = [
    { path: [...consumer.path, agent, "cardIdentity"], value: cardIdentityOf(identity) },
    ...(current === undefined ? [] : retireEdits(base, consumer, agent, current, identity)),
  ];
  const instead = current === undefined ? "" : ` in place of ${current.keyId}`;
  const message = `Pin ${agent} of ${consumer.serverName}\n\nKey ${identity.keyId}${instead}. Planes 1 to 3 are untouched.\n`;
  return proposeEdit(base, consumer.file, edits, message);
}

const Remembered = z.strictObject({
  version: z.literal(1),
  fresh: CardIdentity,
  /** What was pinned before, and a card that its key has signed (base64); null once the change is proved. */
  old: CardIdentity.nullable(),
  old_card: z.string().nullable(),
  /** The last card that a pin has verified (base64): once another is pinned, its key has signed it. */
  last_card: z.string().nullable(),
});
type Remembered = z.output<typeof Remembered>;

/** Changes a pin and proves it. @throws DrawbridgeError `usage`, `guard_refused`, `head_refused`; RegistryError */
export async function pinAgent(context: Federation, parts: AgentParts, options: PinOptions) {
  const { agent, identity, partner } = options;
  const { state } = context;
  const memory = `agents/pin-${encodeURIComponent(partner)}-${agent}.json`;
  const kept = state.read(Remembered, memory, () => undefined);
  const known = isSameIdentity(kept?.fresh, identity) ? kept : undefined;
  let now: Remembered = {
    ...{ version: 1, fresh: cardIdentityOf(identity), last_card: kept?.last_card ?? null },
    ...{ old: known?.old ?? null, old_card: known?.old_card ?? null },
  };
  const remember = (more: Partial<Remembered>) => {
    now = { ...now, ...more };
    state.write(memory, now);
  };
  const propose = async (base: ChangeBase) => {
    const proposal = await proposePin(base, options);
    if (proposal !== undefined) {
      const pinned = consumedAgent(consumerOf(base.registry, partner), agent).cardIdentity;
      now.old = pinned === undefined ? null : cardIdentityOf(pinned);
    }
    return proposal;
  };
  const intend = () => remember({});
  const committed = await commitIdentity(context, { reason: "drawbridge: pin", propose, intend });
  const consumer = consumerOf(committed.base.registry, partner);
  const { cardUrl } = consumedAgent(consumer, agent);
  const served = await parts.fetch(cardUrl);
  const old = now.old ?? undefined;
  if (old !== undefined && now.old_card === null) {
    const last = now.last_card === null ? undefined : Buffer.from(now.last_card, "base64");
    for (const card of [served.fetched ? served.bytes : undefined, last, options.oldCard]) {
      if (card === undefined || !(await isSignedByPin(card, old))) continue;
      remember({ old_card: Buffer.from(card).toString("base64") });
      break;
    }
  }
  const oldCards = now.old_card === null ? [] : [Buffer.from(now.old_card, "base64")];
  const proved = await provePin(context, committed, parts, {
    ...{ act: "pin", agent, partner: consumer.serverName, cardUrl },
    ...{ old, fresh: identity, oldCards, served },
  });
  const isSigned = served.fetched && (await isSignedByPin(served.bytes, identity));
  remember({
    ...(proved.complete && { old: null, old_card: null }),
    ...(isSigned && { last_card: Buffer.from(served.bytes).toString("base64") }),
  });
  return proved;
}

interface WithdrawOptions {
  readonly partner?: string;
  readonly agent: string;
  /** The agent goes and nothing is said against its key, which may be pinned again. */
  readonly keepsKey?: boolean;
}

/** `pinned`: its agent, which our bridge carries; `offered`: ours, which it may invoke. */
function kindOf(registry: Registry, { partner, agent }: WithdrawOptions) {
  const { consumes } = consumerOf(registry, partner);
  if (Object.hasOwn(consumes, agent)) return "pinned";
  if (partner === undefined || partner === registry.organisation.serverName) return "gone";
  const invokes = findPartner(registry, partner).partner.gateway?.invokes ?? [];
  return invokes.includes(agent) ? "offered" : "gone";
}

/** What is to be committed; undefined when it is gone already. @throws DrawbridgeError `usage` */
async function proposeWithdrawal(base: ChangeBase, options: WithdrawOptions) {
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
    return proposeEdit(base, file, edits, message(`Let ${agent} be invoked no more by`));
  }
  const { cardIdentity } = consumedAgent(consumer, agent);
  const isKept = cardIdentity === undefined || options.keepsKey === true;
  const edits = [
    { path: [...consumer.path, agent], value: undefined },
    ...(isKept ? [] : retireEdits(base, consumer, agent, cardIdentity)),
  ];
  const act = options.keepsKey === true ? "Remove" : "Withdraw";
  return proposeEdit(base, consumer.file, edits, message(`${act} ${agent} of`));
}

/** @throws DrawbridgeError `usage` when neither we nor the partner ever knew the agent; and what committing throws */
export async function withdrawAgent(context: Federation, parts: AgentParts, options: WithdrawOptions) {
  const { agent } = options;
  const propose = (base: ChangeBase) => proposeWithdrawal(base, options);
  const committed = await commitIdentity(context, { reason: "drawbridge: withdraw", propose });
  const { registry } = committed.base;
  const kind = kindOf(registry, options);
  const consumer = consumerOf(registry, options.partner);
  const { serverName } = consumer;
  const pin = kind === "pinned" ? consumedAgent(consumer, agent).cardIdentity : undefined;
  const isOurs = Object.hasOwn(registry.organisation.agents, agent);
  const known = kind === "gone" && !isOurs ? await parts.decision?.(agent) : "ours";
  if (known === "unreadable") {
    const what = "the bridge's audit file cannot be read; nothing was changed";
    throw new DrawbridgeError("config_unreadable", what, {
      hint: `Let this user read the file of card.bridgeAuditFile: it says whether ${serverName} had such an agent here.`,
    });
  }
  if (known === undefined) {
    throw new DrawbridgeError("usage", `${serverName} has no agent ${JSON.stringify(agent)} here`, {
      hint: "Name an agent that its file consumes or invokes; nothing was changed.",
    });
  }
  const azp = partnerEntry(registry, serverName)?.partner.azp;
  return proveIdentity(context, committed, {
    act: options.keepsKey === true ? "remove" : "withdraw",
    ...{ agent, partner: serverName, keyId: null, oldKeyId: pin?.keyId ?? null },
    procedure: isOurs && kind !== "pinned" ? WITHDRAW_OFFERED : WITHDRAW_PINNED,
    parts: partsOf(parts),
    observe: async (seal, plane, { desired }) => {
      if (plane === "gateway") return [notInvoked(desired, agent, azp, seal)];
      const shown = notCarried(desired, agent, seal);
      // Of an agent that its file does not name, the bridge need not have decided anything.
      const more = shown.verdict === "closed" ? { undecided: "not_in_agents_file" } : {};
      return [shown, ...(await proveByBridge(parts, { agent, seal, wanted: "quarantined" }, more))];
    },
  });
}

/** What the gateway has in force, by its own digest, has the caller out of this agent. */
function notInvoked(desired: DesiredState, agent: string, azp: string | undefined, seal: Seal) {
  const { agents } = renderedFile(desiredPlane(desired, "gateway"), GATEWAY_INVOCATION, InvocationFile).value;
  const clients = agents[agent]?.clients;
  const isOut = azp === undefined || clients?.includes(azp) !== true;
  const reason = clients === undefined ? "no_route" : isOut ? "azp_not_admitted" : "azp_admitted";
  const { digest } = desired.planes.gateway;
  return seal({
    ...{ probe: "callers_of_agent", layer: "gateway", verdict: isOut ? "closed" : "open" },
    ...{ reason, references: [digest] },
  });
}

function notCarried(desired: DesiredState, agent: string, seal: Seal) {
  const { agents } = renderedFile(desiredPlane(desired, "card"), CARD_AGENTS, AgentsFile).value;
  const isOut = !Object.hasOwn(agents, agent);
  const reason = isOut ? "not_in_agents_file" : "in_agents_file";
  return seal({
    ...{ probe: "agents_file", layer: "bridge", verdict: isOut ? "closed" : "open" },
    ...{ reason, references: [desired.planes.card.digest] },
  });
}
