// registry/partners/NAME.yaml: one partner, on every plane. NAME is how people call it (`org-b`).
// Invariants: unknown keys are refused; `issuer` and `keyIds` only identify, nothing is derived from them;
// a secret is refused; a plane is open only if the entry says so and the partner is not contained.
// Published as docs/reference/schemas/registry-partner.schema.json.
import * as z from "zod";
import { DrawbridgeError } from "../../domain/errors.ts";
import { AgentName, ServerNameField } from "../../domain/identifier-fields.ts";
import { hostReached } from "../../domain/identifiers.ts";
import { GhostPrefix } from "../../rendered-files/agents-file.ts";
import { Quota } from "../../rendered-files/gateway-files.ts";
import { DeclaredClientId } from "../../rendered-files/issuer-clients.ts";
import { RegistrySecretReference } from "../../runtime/secrets.ts";
import { CONTAINMENT_ORDER, PLANE_NAMES, type PlaneName } from "../plane-order.ts";
import { AgentConsumption, ORGANISATION_FILE, type Organisation, type OwnClient } from "./organisation.ts";
import { KeyId, Retired, retiredKeyOf, ServerKeyId, withCardKeys } from "./retired-identities.ts";

export const PlaneState = z.enum(["open", "closed"]);
export type PlaneState = z.output<typeof PlaneState>;

export const Partner = z.strictObject({
  version: z.literal(1),
  serverName: ServerNameField,
  /** The most confidential data that rooms shared with this partner may carry. */
  classification: z.enum(["public", "internal", "confidential", "restricted"]),
  /** Set by `contain`, cleared by `restore`: closes planes 5, 4, 2 and 3, also those that `planes` opens. */
  contained: z.boolean().default(false),
  planes: z
    .strictObject({
      transport: PlaneState.default("open"),
      rooms: PlaneState.default("open"),
      border: PlaneState.default("open"),
      card: PlaneState.default("open"),
      gateway: PlaneState.default("open"),
    })
    .prefault({}),
  azp: DeclaredClientId,
  /** Verify-only: the issuer that this partner's own tokens come from. */
  issuer: z.url({ protocol: /^https?$/ }),
  /** Verify-only. */
  keyIds: z
    .strictObject({
      /** Of its homeserver, such as `ed25519:a_1x2y`. */
      server: z.array(ServerKeyId).default([]),
      card: z.array(KeyId).default([]),
    })
    .prefault({}),
  transport: z
    .strictObject({
      /** Whether its server is a notary for other servers' signing keys (trusted_key_servers). */
      keyServer: z.boolean().default(false),
    })
    .prefault({}),
  rooms: z
    .strictObject({
      /** What becomes of a shared room while the partner is contained. */
      whenContained: z.enum(["keep", "read_only"]).default("keep"),
      /** What becomes of it when the rooms plane is closed for good. */
      whenRemoved: z.enum(["read_only", "retire", "replace"]).default("replace"),
      /** A room that cannot be closed is replaced by a new one, or only listed as out of reach. */
      whenUnclosable: z.enum(["replace", "list"]).default("replace"),
    })
    .prefault({}),
  /** What the localparts of its own bridge's ghosts begin with. What they say never asks an agent of ours. */
  ghostPrefix: GhostPrefix.default("agent_"),
  card: z.strictObject({ consumes: z.record(AgentName, AgentConsumption).default({}) }).prefault({}),
  /** Absent: it has no client here and invokes nothing. */
  gateway: z
    .strictObject({
      invokes: z.array(AgentName).default([]),
      clientSecret: RegistrySecretReference,
      quota: Quota.optional(),
    })
    .optional(),
  /** What was pinned here before and is refused for ever: written by rotation, removal and re-admission. */
  retired: Retired.prefault({}),
});
export type Partner = z.output<typeof Partner>;

export interface PartnerEntry {
  /** The file's name without `.yaml`. */
  readonly name: string;
  readonly file: string;
  readonly partner: Partner;
}

export interface Registry {
  readonly organisation: Organisation;
  /** Sorted by server name. */
  readonly partners: readonly PartnerEntry[];
}

/** Whether a plane admits a partner: what `planes` says, unless containment closes it. */
export function planeState(partner: Partner, plane: PlaneName): PlaneState {
  if (partner.contained && CONTAINMENT_ORDER.includes(plane)) return "closed";
  return partner.planes[plane];
}

/** Whose agents our bridge carries: the organisation's own and each partner's, and where they stand in the registry. */
export function consumersOf({ organisation, partners }: Registry) {
  const at = (file: string, partner?: Partner) => {
    const { serverName, retired } = partner ?? organisation;
    const { consumes } = partner?.card ?? organisation;
    const path = partner === undefined ? ["consumes"] : ["card", "consumes"];
    const keyIds = partner?.keyIds.card ?? [];
    return { file, serverName, path, consumes, retired: retired.cardKeys, keyIds, partner };
  };
  return [at(ORGANISATION_FILE), ...partners.map(({ file, partner }) => at(file, partner))] as const;
}
export type Consumer = ReturnType<typeof consumersOf>[number];

/** Every agent that our bridge carries, with its place in the registry, and the partner whose agent it is. */
export const consumptions = (registry: Registry) =>
  consumersOf(registry).flatMap(({ consumes: all, file, path, partner }) =>
    Object.entries(all).map(([agent, entry]) => ({ agent, entry, file, path: [...path, agent], partner })),
  );

/** Clients of the organisation's that belong to this partner: it had applied with them before it was admitted. */
export function applicantsOf({ organisation }: Registry, { serverName }: Pick<Partner, "serverName">) {
  const host = hostReached(serverName);
  return organisation.clients.filter(({ applicant }) => applicant && hostReached(applicant) === host);
}

/** Clients of our bridge's that the partner's own issuer has given us; another issuer's are not the partner's to close. */
export function clientsAt(partner: Partner | undefined): readonly string[] {
  if (partner === undefined) return [];
  const issuer = new URL(partner.issuer).origin;
  const pinned = Object.values(partner.card.consumes).filter((one) => one.cardIdentity !== undefined);
  const clients = pinned.flatMap(({ credentials }) => credentials ?? []);
  const theirs = clients.filter(({ tokenEndpoint }) => new URL(tokenEndpoint).origin === issuer);
  return theirs.map(({ clientId }) => clientId);
}

/** The organisation's clients as they are in force: an applicant's is closed while it is a partner whose plane is. */
export function clientsInForce(registry: Registry): readonly OwnClient[] {
  const closed = registry.partners.filter(({ partner }) => planeState(partner, "gateway") === "closed");
  const disabled = new Set(closed.flatMap(({ partner }) => applicantsOf(registry, partner)));
  return registry.organisation.clients.map((one) => (disabled.has(one) ? { ...one, enabled: false } : one));
}

/** All identities that a partner's entry pins or has retired, and clients with which it had applied; each once, in a stable order. */
export function retireAll(registry: Registry, partner: Partner): Retired {
  const { azp, card, keyIds, retired } = partner;
  const applied = applicantsOf(registry, partner).map(({ clientId }) => clientId);
  const pinned = Object.values(card.consumes).flatMap(({ cardIdentity }) => cardIdentity ?? []);
  const known = new Set(pinned.map(({ keyId }) => keyId));
  const named = keyIds.card.filter((keyId) => !known.has(keyId)).map((keyId) => ({ keyId }));
  const cardKeys = withCardKeys(retired.cardKeys, [...pinned.map(retiredKeyOf), ...named]);
  const serverKeys = [...new Set([...retired.serverKeys, ...keyIds.server])];
  return { cardKeys, clients: [...new Set([...retired.clients, azp, ...applied])], serverKeys };
}

export const closedPlanes = (partner: Partner): readonly PlaneName[] =>
  PLANE_NAMES.filter((plane) => planeState(partner, plane) === "closed");

export const isRemoved = ({ planes }: Pick<Partner, "planes">): boolean =>
  PLANE_NAMES.every((plane) => planes[plane] === "closed");

export const partnerEntry = ({ partners }: Registry, serverName: string): PartnerEntry | undefined =>
  partners.find(({ partner }) => partner.serverName === serverName);

/** By its server name or its file's name, which no two share. */
export const partnerCalled = ({ partners }: Registry, name: string): PartnerEntry | undefined =>
  partners.find((entry) => entry.name === name || entry.partner.serverName === name);

/** The same. @throws DrawbridgeError `usage` */
export function findPartner(registry: Registry, name: string): PartnerEntry {
  const found = partnerCalled(registry, name);
  if (found !== undefined) return found;
  if (name === registry.organisation.serverName) {
    const hint = "Name a partner; one's own server is never contained. Nothing was changed.";
    throw new DrawbridgeError("usage", `${name} is this organisation's own server`, { hint });
  }
  const close = closeNames(registry, name);
  const shown = name.replaceAll(/[^\x21-\x7e]/g, "?").slice(0, 255);
  const names = "Name it by its server name or by its file in registry/partners; nothing was changed.";
  const hint = close.length > 0 ? `Did you mean ${close.join(", or ")}? Nothing was changed.` : names;
  throw new DrawbridgeError("usage", `no partner is called ${shown}`, { hint });
}

const SUGGESTIONS_MAX = 3;

/** The nearest names alone: somebody in a hurry takes the one that he is offered. */
function closeNames(registry: Registry, name: string): readonly string[] {
  const wanted = name.toLowerCase();
  const near = registry.partners
    .flatMap((entry) => [entry.name, entry.partner.serverName])
    .map((candidate) => ({ candidate, distance: nearness(wanted, candidate.toLowerCase()) }))
    .filter(({ distance }) => distance <= Math.max(2, Math.floor(name.length / 3)))
    .sort((left, right) => left.distance - right.distance || (left.candidate < right.candidate ? -1 : 1));
  return near
    .filter(({ distance }) => distance === near[0]?.distance)
    .slice(0, SUGGESTIONS_MAX)
    .map(({ candidate }) => candidate);
}

/** Edits between two names; a name that begins with the other is one edit away. */
function nearness(wanted: string, candidate: string): number {
  if (wanted.length > 2 && candidate.startsWith(wanted)) return 1;
  let row = Array.from({ length: candidate.length + 1 }, (_, index) => index);
  for (let i = 1; i <= wanted.length; i++) {
    const next = [i];
    for (let j = 1; j <= candidate.length; j++) {
      const replaced = (row[j - 1] ?? 0) + (wanted[i - 1] === candidate[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[candidate.length] ?? 0;
}
