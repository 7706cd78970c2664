// The new identities of a re-admitted partner: a file that the operator writes from what it has handed over.
// Invariants: unknown keys are refused; secrets are references; what was retired is refused here already.
// Published as docs/reference/schemas/readmission-identities.schema.json.
import { normalize } from "node:path";
import { isDeepStrictEqual } from "node:util";
import * as z from "zod";
import { canonicalize } from "../../domain/canonical-json.ts";
import { sha256Tagged } from "../../domain/digest.ts";
import { AgentName } from "../../domain/identifiers.ts";
import type { Json } from "../../domain/json.ts";
import { CardIdentity } from "../../rendered-files/agents-file.ts";
import { DeclaredClientId } from "../../rendered-files/issuer-clients.ts";
import type { YamlEdit } from "../../runtime/edit-yaml.ts";
import { RegistrySecretReference } from "../../runtime/secrets.ts";
import { refuse, refuseRetired } from "../agents/identity-rules.ts";
import { type PartnerEntry, type Registry, retireAll } from "../registry/partner.ts";
import { KeyIdentifier } from "../registry/retired-identities.ts";

export const NewIdentities = z.strictObject({
  version: z.literal(1),
  azp: DeclaredClientId,
  /** Of that client; needed where the partner may invoke agents here. */
  clientSecret: RegistrySecretReference.optional(),
  serverKeys: z.array(KeyIdentifier).default([]),
  /** Its agents that our bridge carries, by their name here. One that is left out stays without a pin. */
  agents: z
    .record(
      AgentName,
      z.strictObject({
        cardIdentity: CardIdentity,
        clientId: z.string().min(1).max(255).optional(),
        clientSecret: RegistrySecretReference.optional(),
      }),
    )
    .default({}),
});
export type NewIdentities = z.output<typeof NewIdentities>;

export function newIdentitiesDigest(identities: NewIdentities): string {
  return sha256Tagged(canonicalize(plain(identities) as Json));
}

/** Retires all that a partner's file pins, and puts the new identities in. @throws DrawbridgeError `guard_refused` */
export function newIdentityEdits(registry: Registry, entry: PartnerEntry, identities: NewIdentities) {
  const { partner } = entry;
  const retired = retireAll(partner);
  if (retired.clients.includes(identities.azp)) {
    throw refuse("retired_client", `${identities.azp} was this partner's client before its removal`);
  }
  if (partner.gateway !== undefined && identities.clientSecret === undefined) {
    throw refuse("fresh_secret", `${entry.name} may invoke agents here, and its new client names no secret`);
  }
  if (isSameSecret(partner.gateway?.clientSecret, identities.clientSecret)) {
    throw refuse("fresh_secret", `the new client of ${entry.name} names the secret of the one before`);
  }
  for (const id of identities.serverKeys) {
    if (retired.serverKeys.includes(id))
      throw refuse("retired_key", `${id} was this partner's server key before its removal`);
  }
  const edits: YamlEdit[] = [
    { path: ["retired"], value: plain(retired) },
    { path: ["azp"], value: identities.azp },
  ];
  if (partner.contained) edits.push({ path: ["contained"], value: false });
  const { server, card } = partner.keyIds;
  if (server.length > 0 || identities.serverKeys.length > 0) {
    edits.push({ path: ["keyIds", "server"], value: identities.serverKeys });
  }
  const signers = Object.values(identities.agents).map(({ cardIdentity }) => cardIdentity.keyId);
  if (card.length > 0) edits.push({ path: ["keyIds", "card"], value: [...new Set(signers)] });
  if (partner.gateway !== undefined) {
    edits.push({ path: ["gateway", "clientSecret"], value: identities.clientSecret });
  }
  for (const [agent, entryOfAgent] of Object.entries(partner.card.consumes)) {
    const path = ["card", "consumes", agent];
    const given = Object.hasOwn(identities.agents, agent) ? identities.agents[agent] : undefined;
    if (given === undefined) {
      edits.push({ path: [...path, "cardIdentity"], value: undefined });
      continue;
    }
    refuseRetired(registry, given.cardIdentity, retired.cardKeys);
    edits.push({ path: [...path, "cardIdentity"], value: plain(given.cardIdentity) });
    if (entryOfAgent.credentials === undefined) continue;
    const { clientId, clientSecret } = given;
    const before = entryOfAgent.credentials.clientSecret;
    if (clientId !== undefined && isSameSecret(before, clientSecret ?? before)) {
      throw refuse("fresh_secret", `our new client for ${agent} names the secret of the one before`);
    }
    const at = [...path, "credentials"];
    if (clientId !== undefined) edits.push({ path: [...at, "clientId"], value: clientId });
    if (clientSecret !== undefined) edits.push({ path: [...at, "clientSecret"], value: clientSecret });
  }
  const { consumes } = partner.card;
  const unknown = Object.keys(identities.agents).find((agent) => !Object.hasOwn(consumes, agent));
  if (unknown !== undefined) throw refuse("unknown_agent", `${entry.name} consumes no agent ${unknown}`);
  return edits;
}

type Secret = RegistrySecretReference | undefined;

function isSameSecret(before: Secret, now: Secret): boolean {
  const named = (secret: Secret) =>
    secret !== undefined && "file" in secret ? { file: normalize(secret.file) } : secret;
  return before !== undefined && isDeepStrictEqual(named(before), named(now));
}

function plain(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value));
}
