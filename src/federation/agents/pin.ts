// An agent is added to our bridge with the key that its operator hands over, or an entry pins a new identity, and the old one
// is retired. Invariants: what an address serves is verified before an agent is added; a pin is replaced only by name; a
// retired key is never pinned; what was pinned, and the last card that a pin has verified, are remembered beyond a kill.

import * as z from "zod";
import { DrawbridgeError } from "../../domain/errors.ts";
import { CardIdentity } from "../../rendered-files/agents-file.ts";
import { type ChangeBase, changeBase } from "../change/change-base.ts";
import type { Proposal } from "../change/commit-change.ts";
import type { Federation } from "../reconcile/context.ts";
import { ORGANISATION_FILE } from "../registry/organisation.ts";
import { consumersOf } from "../registry/partner.ts";
import { type PinnedIdentity, thumbprintOf } from "../registry/retired-identities.ts";
import { type AgentParts, commitIdentity, isSignedBy, provePin, verifyByPin } from "./commit-and-prove.ts";
import { agentOf, cardIdentityOf, consumerOf, refuse, refuseRetired, retireEdits } from "./identity-rules.ts";

const isSameIdentity = (one: PinnedIdentity | undefined, other: PinnedIdentity): boolean =>
  one?.keyId === other.keyId && thumbprintOf(one.jwk) === thumbprintOf(other.jwk);

export interface AddOptions {
  readonly agent: string;
  readonly cardUrl: string;
  readonly identity: PinnedIdentity;
  readonly allowedOrigins: readonly string[];
}

/** Undefined when the agent is there already, at this address, under this key, with these origins. @throws DrawbridgeError */
function proposeAddition(base: ChangeBase, options: AddOptions): Proposal | undefined {
  const { registry } = base;
  const { agent, cardUrl, identity, allowedOrigins } = options;
  const taken = consumersOf(registry).find(({ consumes }) => Object.hasOwn(consumes, agent));
  if (taken !== undefined) {
    const present = agentOf(taken, agent);
    const isSame =
      present.cardUrl === cardUrl &&
      isSameIdentity(present.cardIdentity, identity) &&
      allowedOrigins.every((origin) => present.allowedOrigins.includes(origin));
    if (isSame && taken.file === ORGANISATION_FILE) return undefined;
    throw refuse("agent_present", `${taken.file} has an agent ${agent} already`);
  }
  refuseRetired(registry, identity, registry.organisation.retired.cardKeys);
  const origins = allowedOrigins.length > 0 && { allowedOrigins };
  const value = { cardUrl, ...origins, cardIdentity: cardIdentityOf(identity) };
  const message = `Add ${agent}\n\nKey ${identity.keyId}. Planes 1 to 3 are untouched.\n`;
  return { file: ORGANISATION_FILE, edits: [{ path: ["consumes", agent], value }], message };
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

function proposePin(base: ChangeBase, options: PinOptions): Proposal | undefined {
  const { agent, identity, replaces } = options;
  const { registry } = base;
  const consumer = consumerOf(registry, options.partner);
  const current = agentOf(consumer, agent).cardIdentity;
  if (isSameIdentity(current, identity)) return undefined;
  refuseRetired(registry, identity, consumer.retired);
  if (current !== undefined && current.keyId !== replaces)
    throw refuse("pinned_jwk", `${agent} is pinned to ${current.keyId} already`);
  const edits = [
    { path: [...consumer.path, agent, "cardIdentity"], value: cardIdentityOf(identity) },
    ...(current === undefined ? [] : retireEdits(base, consumer, agent, current, identity)),
  ];
  const instead = current === undefined ? "" : ` in place of ${current.keyId}`;
  const message = `Pin ${agent} of ${consumer.serverName}\n\nKey ${identity.keyId}${instead}. Planes 1 to 3 are untouched.\n`;
  return { file: consumer.file, edits, message };
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

/** Of one agent of one partner: neither name holds a slash. */
export const memoryFile = (serverName: string, agent: string): string =>
  `agents/pin-${encodeURIComponent(`${serverName}/${agent}`)}.json`;

/** Changes a pin and proves it. @throws DrawbridgeError `usage`, `guard_refused`, `head_refused`; RegistryError */
export async function pinAgent(context: Federation, parts: AgentParts, options: PinOptions) {
  const { agent, identity, partner } = options;
  const { state } = context;
  // By its server name, whichever of its names the partner is called by.
  const { serverName } = consumerOf((await changeBase(context)).registry, partner);
  const memory = memoryFile(serverName, agent);
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
  const propose = (base: ChangeBase) => {
    const proposal = proposePin(base, options);
    if (proposal !== undefined) {
      const pinned = agentOf(consumerOf(base.registry, partner), agent).cardIdentity;
      now.old = pinned === undefined ? null : cardIdentityOf(pinned);
    }
    return proposal;
  };
  const intend = () => remember({});
  const committed = await commitIdentity(context, { reason: "drawbridge: pin", propose, intend });
  const consumer = consumerOf(committed.base.registry, partner);
  const { cardUrl } = agentOf(consumer, agent);
  const served = await parts.fetch(cardUrl);
  const old = now.old ?? undefined;
  if (old !== undefined && now.old_card === null) {
    const last = now.last_card === null ? undefined : Buffer.from(now.last_card, "base64");
    for (const card of [served.fetched ? served.bytes : undefined, last, options.oldCard]) {
      if (card === undefined || !(await isSignedBy(card, old))) continue;
      remember({ old_card: Buffer.from(card).toString("base64") });
      break;
    }
  }
  const oldCards = now.old_card === null ? [] : [Buffer.from(now.old_card, "base64")];
  const proved = await provePin(context, committed, parts, {
    ...{ act: "pin", agent, partner: consumer.serverName, cardUrl },
    ...{ old, fresh: identity, oldCards, served },
  });
  const isSigned = served.fetched && (await isSignedBy(served.bytes, identity));
  remember({
    ...(proved.complete && { old: null, old_card: null }),
    ...(isSigned && { last_card: Buffer.from(served.bytes).toString("base64") }),
  });
  return proved;
}
