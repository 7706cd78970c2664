// Which entries of the registry pin an agent, and what may not happen to its identity, each rule by its name. Pure.
// Invariant: a refusal names its rule and what to do, and comes before anything of the registry is changed.
import { DrawbridgeError } from "../../domain/errors.ts";
import type { CardIdentity } from "../../rendered-files/agents-file.ts";
import type { YamlEdit } from "../../runtime/edit-yaml.ts";
import type { ChangeBase } from "../change/change-base.ts";
import { type Consumer, consumersOf, consumptions, findPartner, type Registry } from "../registry/partner.ts";
import {
  type PinnedIdentity,
  type RetiredCardKey,
  retiredKeyOf,
  thumbprintOf,
  withCardKeys,
} from "../registry/retired-identities.ts";
import { cardKeysIn } from "../registry/retired-identities-checks.ts";

export const GUARDS = {
  missing_key:
    "Put the private key back from where it is kept. If it is lost for good, say so with --lost: then the public key is withdrawn, and every partner must pin the new one.",
  other_key: "Name the private key whose public half the registry lists under cardKeys.",
  nothing_to_rotate: "Make a first key with drawbridge card keygen, and list it under cardKeys.",
  staged_key:
    "Find out whose key it is. Move it away; or take it on purpose, naming the file with --new-key.",
  pinned_jwk: "Take another key. To change a pin, say which key it replaces: --replaces KEY-ID.",
  retired_key: "Take a fresh key: one that was given up may be in other hands.",
  private_jwk: "Ask for the public JWK alone, and have the operator rotate the key: this one has been shown.",
  in_version_control: "Keep the private key outside every work tree, readable by its user alone.",
  retired_client: "Declare a client with an ID of its own, which was never used before.",
  fresh_secret: "Name a secret of the new client's own by reference: clientSecret: {file: …}.",
  agent_present:
    "Take another name; or remove the agent first: drawbridge agent remove. A new key of the same agent is pinned with drawbridge agent pin; a new origin is written into allowedOrigins of its entry.",
  unverified_card:
    "See what the address serves with drawbridge card fetch. The card must be signed (drawbridge card sign) by the key that is handed over.",
  unknown_agent: "Correct its name, or register the agent first, without a pin.",
  not_removed: "Re-admission follows a removal: close all five planes first, with drawbridge offboarding.",
  removal_open: "End the removal first: drawbridge offboarding status says what is left, abort ends it.",
  removed_since:
    "Open another re-admission, with a gate and identities of its own: drawbridge readmission open.",
  closed_again:
    "Find out in git log who closed it. Re-admission goes on from an open plane only; once all are closed, another one may be opened.",
  planes_1_to_3_untouched: "Report this: a change of one agent's identity must not reach these planes.",
} as const;
export type Guard = keyof typeof GUARDS;

/** @param kept what is said to be as it was */
export function refuse(rule: Guard, message: string, kept = "nothing was changed"): DrawbridgeError {
  const hint = GUARDS[rule];
  return new DrawbridgeError("guard_refused", `${message}; ${kept} [${rule}]`, { hint });
}

/** Refuses a key that anybody has retired, or whose ID its own owner has. @throws DrawbridgeError */
export function refuseRetired(registry: Registry, fresh: PinnedIdentity, own: readonly RetiredCardKey[]) {
  const { keyId } = fresh;
  const thumbprint = thumbprintOf(fresh.jwk);
  const everywhere = [...own, ...consumersOf(registry).flatMap(({ retired }) => retired)];
  if (everywhere.some((key) => key.thumbprint === thumbprint))
    throw refuse("retired_key", "this key is on the retired list");
  if (own.some((key) => key.keyId === keyId))
    throw refuse("retired_key", `the key ID ${keyId} is on the retired list`);
}

/** @param present the public half of the key to be given up, where there is its file. @throws DrawbridgeError `guard_refused` */
export function guardRotation(
  registry: Registry,
  { agent, isLost }: { readonly agent: string; readonly isLost: boolean },
  present: PinnedIdentity["jwk"] | undefined,
  fresh: PinnedIdentity,
): void {
  const { agents, retired } = registry.organisation;
  const published = agents[agent]?.cardKeys ?? [];
  if (published.length === 0) throw refuse("nothing_to_rotate", `${agent} has no public key in the registry`);
  if (present === undefined && !isLost)
    throw refuse("missing_key", `the private key of ${agent} is missing while its public key is published`);
  if (present !== undefined && !published.some(({ jwk }) => thumbprintOf(jwk) === thumbprintOf(present)))
    throw refuse("other_key", `this private key is not the one that ${agent} is published with`);
  const thumbprint = thumbprintOf(fresh.jwk);
  const pin = cardKeysIn(registry).find(({ identity }) => thumbprintOf(identity.jwk) === thumbprint);
  if (pin !== undefined)
    throw refuse("pinned_jwk", `the new key is pinned already (${pin.file}: ${pin.path.join(".")})`);
  if (Object.values(agents).some(({ cardKeys }) => cardKeys.some(({ keyId }) => keyId === fresh.keyId)))
    throw refuse("pinned_jwk", `the key ID ${fresh.keyId} is in use already`);
  refuseRetired(registry, fresh, retired.cardKeys);
}

/** @param name a partner, or our own server, which is meant when none is named. @throws DrawbridgeError `usage` */
export function consumerOf(registry: Registry, name?: string): Consumer {
  const [own, ...others] = consumersOf(registry);
  if (name === undefined || name === own.serverName) return own;
  const { file } = findPartner(registry, name);
  return others.find((one) => one.file === file) ?? own;
}

export function cardIdentityOf({ keyId, jwk: { x, y } }: PinnedIdentity): CardIdentity {
  return { keyId, jwk: { kty: "EC", crv: "P-256", x, y } };
}

/** @throws DrawbridgeError `usage` when the entry does not consume it */
export function agentOf(consumer: Consumer, agent: string): Consumer["consumes"][string] {
  const found = Object.hasOwn(consumer.consumes, agent) ? consumer.consumes[agent] : undefined;
  if (found !== undefined) return found;
  const names = Object.keys(consumer.consumes);
  const hint =
    names.length === 0 ? "It consumes none; nothing was changed." : `Name one of ${names.join(", ")}.`;
  throw new DrawbridgeError("usage", `${consumer.file} consumes no agent ${JSON.stringify(agent)}`, { hint });
}

/** Retires a pin, unless another entry still pins that key; on the verify-only list `instead` comes into its place. */
export function retireEdits(
  { registry }: Pick<ChangeBase, "registry">,
  consumer: Consumer,
  agent: string,
  old: PinnedIdentity,
  instead?: PinnedIdentity,
): YamlEdit[] {
  const { file, retired, keyIds } = consumer;
  const isPinnedElsewhere = consumptions(registry).some(
    ({ entry: { cardIdentity }, ...pin }) =>
      (pin.file !== file || pin.agent !== agent) &&
      cardIdentity !== undefined &&
      thumbprintOf(cardIdentity.jwk) === thumbprintOf(old.jwk),
  );
  const kept = isPinnedElsewhere ? keyIds : keyIds.filter((keyId) => keyId !== old.keyId);
  const now = instead === undefined || kept.includes(instead.keyId) ? kept : [...kept, instead.keyId];
  // A list that does not name what is given up stays as it is.
  const isListed = isPinnedElsewhere ? keyIds.length > 0 : kept.length < keyIds.length;
  const retiring = { path: ["retired", "cardKeys"], value: withCardKeys(retired, [retiredKeyOf(old)]) };
  const listing = isListed && now !== keyIds ? [{ path: ["keyIds", "card"], value: now }] : [];
  return [...(isPinnedElsewhere ? [] : [retiring]), ...listing];
}
