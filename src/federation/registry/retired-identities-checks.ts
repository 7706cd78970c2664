// Refuses retired identities that are used or forgotten, and a removed partner without the record of its re-admission.
// Invariants: linear in the number of partners; a retired identity is allowed in its own entry while the plane that
// it is for is closed, and nowhere else; an organisation's list of retired identities never becomes shorter.
import type { CardIdentity } from "../../rendered-files/agents-file.ts";
import { PLANE_NAMES } from "../plane-order.ts";
import { readmissionRecordsIn } from "./committed-records.ts";
import { ORGANISATION_FILE } from "./organisation.ts";
import { applicantsOf, consumptions, type PartnerEntry, type Registry } from "./partner.ts";
import { broken, type CrossProblem } from "./problems.ts";
import { type Retired, thumbprintOf, withCardKeys } from "./retired-identities.ts";

/** Where an identity stands; nothing of an entry is in force while its plane is closed, in the file `closedIn`. */
interface Place extends Pick<CrossProblem, "file" | "path"> {
  readonly closedIn: string | undefined;
}

/** The keys of cards that agents are offered with, and those that are pinned. */
export function cardKeysIn(registry: Registry): (Place & { readonly identity: CardIdentity })[] {
  const offered = Object.entries(registry.organisation.agents).flatMap(([agent, { cardKeys }]) =>
    cardKeys.map((identity, index) => {
      const path = ["agents", agent, "cardKeys", index];
      return { identity, file: ORGANISATION_FILE, path, closedIn: undefined };
    }),
  );
  const consumed = consumptions(registry).flatMap(({ entry: { cardIdentity }, file, path, partner }) => {
    if (cardIdentity === undefined) return [];
    const closedIn = partner?.planes.card === "closed" ? file : undefined;
    return [{ identity: cardIdentity, file, path: [...path, "cardIdentity"], closedIn }];
  });
  return [...offered, ...consumed];
}

/** An applicant's client stays declared and disabled while its partner is closed, as the partner's own client does. */
export function clientsIn(registry: Registry): (Place & { readonly clientId: string })[] {
  const { organisation, partners } = registry;
  const closed = partners.filter(({ partner }) => partner.planes.gateway === "closed");
  const closing = new Map(
    closed.flatMap(({ file, partner }) => applicantsOf(registry, partner).map((one) => [one, file])),
  );
  return [
    ...organisation.clients.map((one, index) => {
      const path = ["clients", index, "clientId"];
      return { clientId: one.clientId, file: ORGANISATION_FILE, path, closedIn: closing.get(one) };
    }),
    ...partners.map(({ file, partner: { azp, planes } }) => {
      const closedIn = planes.gateway === "closed" ? file : undefined;
      return { clientId: azp, file, path: ["azp"], closedIn };
    }),
  ];
}

/** Card keys as the entry in `file` retires them, each once: one that another entry pins too is retired by its ID alone. */
export function retiredIn(registry: Registry, file: string, cardKeys: Retired["cardKeys"]) {
  const others = cardKeysIn(registry).filter((one) => one.file !== file);
  const elsewhere = new Set(others.map(({ identity }) => thumbprintOf(identity.jwk)));
  const kept = cardKeys.map(({ keyId, thumbprint }) =>
    thumbprint === undefined || elsewhere.has(thumbprint) ? { keyId } : { keyId, thumbprint },
  );
  return withCardKeys([], kept);
}

export function checkRetired(registry: Registry): CrossProblem[] {
  const { partners } = registry;
  const retirements = retirementsIn(registry);
  const keyIds = new Map(
    retirements.map(({ file, retired }) => [file, new Set(retired.cardKeys.map(({ keyId }) => keyId))]),
  );
  const keyOwners = new Map(
    retirements.flatMap(({ file, retired }) =>
      retired.cardKeys.flatMap(({ thumbprint = "" }) => (thumbprint === "" ? [] : [[thumbprint, file]])),
    ),
  );
  const clientOwners = new Map(
    partners.flatMap(({ file, partner }) => partner.retired.clients.map((client) => [client, file])),
  );
  const keys = cardKeysIn(registry).flatMap(({ identity: { keyId, jwk }, file, path, closedIn }) => {
    const owner = keyOwners.get(thumbprintOf(jwk)) ?? (keyIds.get(file)?.has(keyId) ? file : undefined);
    if (owner === undefined || owner === closedIn) return [];
    return [broken("retired_card_key", file, path, `pins a key that ${owner} has retired`)];
  });
  const clients = clientsIn(registry).flatMap(({ clientId, file, path, closedIn }) => {
    const owner = clientOwners.get(clientId);
    if (owner === undefined || owner === closedIn) return [];
    return [broken("retired_client", file, path, `is a client that ${owner} has retired`)];
  });
  return [...keys, ...clients, ...partners.flatMap(partnerProblems)];
}

function partnerProblems({ file, partner: { azp, keyIds, planes, retired } }: PartnerEntry): CrossProblem[] {
  const open = PLANE_NAMES.find((plane) => planes[plane] === "open");
  const isRemoved = planes.gateway === "closed" && retired.clients.includes(azp);
  const opens = "opens a plane to a partner that was removed";
  const named = (which: "server" | "card", gone: readonly string[]) =>
    keyIds[which].flatMap((id, index) => {
      const message = "names a key ID that is retired";
      const at = ["keyIds", which, index] as const;
      return gone.includes(id) ? [broken(`retired_${which}_key`, file, at, message)] : [];
    });
  const cardKeyIds = retired.cardKeys.map(({ keyId }) => keyId);
  return [
    ...(isRemoved && open !== undefined ? [broken("retired_partner", file, ["planes", open], opens)] : []),
    ...(planes.transport === "closed" ? [] : named("server", retired.serverKeys)),
    ...(planes.card === "closed" ? [] : named("card", cardKeyIds)),
  ];
}

/** Partners that were removed and have an open plane, so a new client: each needs the record of a re-admission. */
export const readmitted = ({ partners }: Registry): readonly PartnerEntry[] =>
  partners.filter(
    ({ partner: { planes, retired } }) =>
      retired.clients.length > 0 && PLANE_NAMES.some((plane) => planes[plane] === "open"),
  );

export function withoutReadmission(registry: Registry, records: Iterable<string>): string[] {
  const opened = new Set(
    readmissionRecordsIn(records)
      .filter(({ act }) => act === "opened")
      .map(({ server_name, azp }) => JSON.stringify([server_name, azp])),
  );
  return readmitted(registry).flatMap(({ file, partner: { serverName, azp } }) =>
    opened.has(JSON.stringify([serverName, azp])) ? [] : [file],
  );
}

export type Retirement = ReturnType<typeof retirementsIn>[number];

export function retirementsIn({ organisation, partners }: Registry) {
  const own = { file: ORGANISATION_FILE, serverName: null, contained: false };
  return [
    { ...own, retired: { ...NOTHING, ...organisation.retired } },
    ...partners.map(({ file, partner: { serverName, contained, retired } }) => {
      return { file, serverName, contained, retired };
    }),
  ];
}

/** The files of earlier retirements that a later registry lacks in part; a file may have been renamed. */
export function lostRetirement(earlier: readonly Retirement[], later: Registry): string[] {
  const now = new Map(retirementsIn(later).map(({ serverName, retired }) => [serverName, retired]));
  const lost = earlier.filter((one) => !holdsAll(now.get(one.serverName) ?? NOTHING, one.retired));
  return lost.map(({ file }) => file);
}

/** Contained partners that a later registry does not contain, or does not know: a removal keeps the flag. */
export function endedContainments(earlier: readonly Retirement[], { partners }: Registry) {
  const now = new Map(partners.map(({ partner: { serverName, contained } }) => [serverName, contained]));
  return earlier.flatMap(({ file, serverName, contained }) =>
    contained && serverName !== null && now.get(serverName) !== true
      ? [{ file, serverName, hasEntry: now.has(serverName) }]
      : [],
  );
}

const NOTHING: Retired = { cardKeys: [], clients: [], serverKeys: [] };

const holdsAll = (now: Retired, before: Retired): boolean =>
  withCardKeys(now.cardKeys, before.cardKeys).length === now.cardKeys.length &&
  before.clients.every((client) => now.clients.includes(client)) &&
  before.serverKeys.every((keyId) => now.serverKeys.includes(keyId));
