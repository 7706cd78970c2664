// Whose entry pins an agent: a partner's file, or the organisation's own for agents that no partner publishes.

import { DrawbridgeError } from "../../domain/errors.ts";
import type { CardIdentity } from "../../rendered-files/agents-file.ts";
import type { YamlEdit } from "../../runtime/edit-yaml.ts";
import type { ChangeBase } from "../change/commit-base.ts";
import { ORGANISATION_FILE } from "../registry/organisation.ts";
import { consumptions, findPartner, type Partner, type Registry } from "../registry/partner.ts";
import {
  type PinnedIdentity,
  type RetiredCardKey,
  retiredKeyOf,
  thumbprintOf,
  withCardKeys,
} from "../registry/retired-identities.ts";

type Consumes = Partner["card"]["consumes"];

/** A file of the registry that pins agents. */
export interface Consumer {
  readonly file: string;
  readonly serverName: string;
  readonly consumes: Consumes;
  /** Where `consumes` stands in the file. */
  readonly path: readonly string[];
  readonly retired: readonly RetiredCardKey[];
  /** Verify-only key IDs of the file. */
  readonly keyIds: readonly string[];
}

/** The organisation's own entry, then those of its partners. */
export function consumersOf({ organisation, partners }: Registry): readonly [Consumer, ...Consumer[]] {
  return [
    {
      ...{ file: ORGANISATION_FILE, serverName: organisation.serverName, path: ["consumes"] },
      ...{ consumes: organisation.consumes, retired: organisation.retired.cardKeys, keyIds: [] },
    },
    ...partners.map(({ file, partner: { serverName, card, retired, keyIds } }) => ({
      ...{ file, serverName, path: ["card", "consumes"] },
      ...{ consumes: card.consumes, retired: retired.cardKeys, keyIds: keyIds.card },
    })),
  ];
}

/** @param name a partner, or our own server, which is meant when none is named. @throws DrawbridgeError `usage` */
export function consumerOf(registry: Registry, name?: string): Consumer {
  const [own, ...others] = consumersOf(registry);
  if (name === undefined || name === own.serverName) return own;
  const { file } = findPartner(registry, name);
  return others.find((one) => one.file === file) ?? own;
}

/** Every place of the registry where a key is pinned. */
export function pinsOf(registry: Registry, { jwk }: PinnedIdentity) {
  const thumbprint = thumbprintOf(jwk);
  return consumptions(registry).filter(
    ({ entry: { cardIdentity } }) => cardIdentity && thumbprintOf(cardIdentity.jwk) === thumbprint,
  );
}

/** An identity as the registry writes it. */
export function cardIdentityOf({ keyId, jwk: { x, y } }: PinnedIdentity): CardIdentity {
  return { keyId, jwk: { kty: "EC", crv: "P-256", x, y } };
}

export function isSameIdentity(one: PinnedIdentity | undefined, other: PinnedIdentity): boolean {
  return one?.keyId === other.keyId && thumbprintOf(one.jwk) === thumbprintOf(other.jwk);
}

/** @throws DrawbridgeError `usage` when the entry does not consume it */
export function consumedAgent(consumer: Consumer, agent: string): Consumes[string] {
  const found = Object.hasOwn(consumer.consumes, agent) ? consumer.consumes[agent] : undefined;
  if (found !== undefined) return found;
  const names = Object.keys(consumer.consumes);
  throw new DrawbridgeError("usage", `${consumer.file} consumes no agent ${JSON.stringify(agent)}`, {
    hint: names.length === 0 ? "It consumes none; nothing was changed." : `Name one of ${names.join(", ")}.`,
  });
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
  const pins = pinsOf(registry, old);
  const isPinnedElsewhere = pins.some((pin) => pin.file !== file || pin.agent !== agent);
  const kept = isPinnedElsewhere ? keyIds : keyIds.filter((keyId) => keyId !== old.keyId);
  const now = instead === undefined || kept.includes(instead.keyId) ? kept : [...kept, instead.keyId];
  // A list that does not name what is given up stays as it is.
  const isListed = isPinnedElsewhere ? keyIds.length > 0 : kept.length < keyIds.length;
  const retiring = { path: ["retired", "cardKeys"], value: withCardKeys(retired, [retiredKeyOf(old)]) };
  return [
    ...(isPinnedElsewhere ? [] : [retiring]),
    ...(isListed && now !== keyIds ? [{ path: ["keyIds", "card"], value: now }] : []),
  ];
}
