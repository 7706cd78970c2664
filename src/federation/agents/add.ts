// A new agent for our own bridge: an entry of the organisation's own file, pinned to the key that its operator hands over,
// and taken away again. Invariants: what the address serves is verified by that key before anything is committed; an
// agent that is there already stays as it is; removing it retires no key, since nothing is said against the key.

import { DrawbridgeError } from "../../domain/errors.ts";
import type { ChangeBase } from "../change/commit-base.ts";
import { type Proposal, proposeEdit } from "../change/commit-change.ts";
import type { Federation } from "../reconcile/context.ts";
import { ORGANISATION_FILE } from "../registry/organisation.ts";
import type { PinnedIdentity } from "../registry/retired-identities.ts";
import { commitIdentity, type IdentityResult, provePin } from "./commit-identity.ts";
import { refuse, refuseRetired } from "./identity-rules.ts";
import { cardIdentityOf, consumedAgent, consumersOf, isSameIdentity } from "./pinned-entry.ts";
import { type AgentParts, verifyByPin } from "./proof.ts";

export interface AddOptions {
  /** Its name here, which becomes part of its ghost's user ID. */
  readonly agent: string;
  readonly cardUrl: string;
  readonly identity: PinnedIdentity;
  /** Where its interfaces may be besides the card's own origin. */
  readonly allowedOrigins: readonly string[];
  /** Shown in rooms; the card's own name when absent. */
  readonly displayName?: string | undefined;
}

/** What is to be committed; undefined when the agent is there already, at this address under this key. @throws DrawbridgeError */
async function proposeAddition(base: ChangeBase, options: AddOptions): Promise<Proposal | undefined> {
  const { registry } = base;
  const { agent, cardUrl, identity, allowedOrigins, displayName } = options;
  const taken = consumersOf(registry).find(({ consumes }) => Object.hasOwn(consumes, agent));
  if (taken !== undefined) {
    const present = consumedAgent(taken, agent);
    const isSame = present.cardUrl === cardUrl && isSameIdentity(present.cardIdentity, identity);
    if (isSame && taken.file === ORGANISATION_FILE) return undefined;
    throw refuse("agent_present", `${taken.file} has an agent ${agent} already`);
  }
  refuseRetired(registry, identity, registry.organisation.retired.cardKeys);
  const entry = {
    cardUrl,
    ...(allowedOrigins.length > 0 && { allowedOrigins }),
    cardIdentity: cardIdentityOf(identity),
    ...(displayName !== undefined && { displayName }),
  };
  const edits = [{ path: ["consumes", agent], value: entry }];
  const message = `Add ${agent}\n\nKey ${identity.keyId}. Planes 1 to 3 are untouched.\n`;
  return proposeEdit(base, ORGANISATION_FILE, edits, message);
}

/**
 * Adds an agent, and waits until the bridge has verified it.
 * @throws DrawbridgeError `guard_refused`, `agent_unavailable`, `head_refused`; RegistryError
 */
export async function addAgent(
  context: Federation,
  parts: AgentParts,
  options: AddOptions,
): Promise<IdentityResult> {
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
  const committed = await commitIdentity(context, "drawbridge: add agent", (base) =>
    proposeAddition(base, options),
  );
  return provePin(context, committed, parts, {
    ...{ act: "add", agent, partner: committed.base.registry.organisation.serverName, cardUrl },
    ...{ old: undefined, fresh: identity, oldCards: [], served },
  });
}
