// What no file can show by itself: names that collide, lists that name what does not exist, servers that room ACLs cannot
// tell apart, retired identities that are used or forgotten. Invariants: linear in the number of partners, and every
// collision is reported; a retired identity is allowed in its own entry while the plane that it is for is closed, and
// nowhere else; an organisation's list of retired identities never becomes shorter.
import { isIpLiteral, parseServerName, parseUserId, serverHost, serverOf } from "../../domain/identifiers.ts";
import type { CardIdentity } from "../../rendered-files/agents-file.ts";
import type { RegistrySecretReference } from "../../runtime/secrets.ts";
import { PLANE_NAMES } from "../plane-order.ts";
import { type OfferedAgent, ORGANISATION_FILE, type Organisation } from "./organisation.ts";
import { applicantsOf, consumptions, type PartnerEntry, type Registry } from "./partner.ts";
import { broken, type CrossProblem, type CrossRule } from "./problems.ts";
import { readmissionRecordsIn } from "./readmission-record.ts";
import { type Retired, thumbprintOf, withCardKeys } from "./retired-identities.ts";

export function crossCheck(registry: Registry): CrossProblem[] {
  return [
    ...checkServers(registry),
    ...checkClients(registry),
    ...checkOffers(registry),
    ...checkPaths(registry.organisation),
    ...checkConsumed(registry),
    ...checkCredentials(registry),
    ...checkRetired(registry),
  ];
}

function checkServers({ organisation, partners }: Registry): CrossProblem[] {
  const problems: CrossProblem[] = [];
  const names = new Map(partners.map(({ name, file }) => [name, file]));
  const hosts = new Map<string, { server: string; file: string }>();
  const add = (server: string, file: string, name?: string) => {
    const problem = (rule: CrossRule, message: string) =>
      problems.push(broken(rule, file, ["serverName"], message));
    const host = serverHost(server);
    const other = hosts.get(host);
    if (other === undefined) hosts.set(host, { server, file });
    else if (other.server === server) {
      if (other.file === ORGANISATION_FILE) problem("own_server", "is this organisation's own server");
      else problem("duplicate_server", `${other.file} names the same server`);
    } else if (other.server.toLowerCase() === server.toLowerCase()) {
      problem("server_case", `differs from ${other.server} in ${other.file} in case alone`);
    } else {
      const why = "room ACLs ignore the port, so neither can be closed without the other";
      problem("server_host", `has the host of ${other.server} in ${other.file}: ${why}`);
    }
    if (isIpLiteral(host)) {
      problem("ip_literal", "is an IP literal, which every room ACL rendered here refuses");
    }
    const namesake = name === undefined || name === server ? undefined : names.get(server);
    if (namesake === undefined) return;
    problem("ambiguous_name", `is also the file name of another partner (${namesake})`);
  };
  add(organisation.serverName, ORGANISATION_FILE);
  for (const { file, name, partner } of partners) add(partner.serverName, file, name);
  return problems;
}

function checkClients(registry: Registry): CrossProblem[] {
  const seen = new Map<string, string>();
  return clientsIn(registry).flatMap(({ clientId, file, path }) => {
    const other = seen.get(clientId);
    seen.set(clientId, other ?? file);
    if (other === undefined) return [];
    const whose = other === file ? "another entry of this file" : other;
    return [broken("duplicate_azp", file, path, `is also the client of ${whose}`)];
  });
}

function checkOffers({ organisation, partners }: Registry): CrossProblem[] {
  const offered = new Set(Object.keys(organisation.agents));
  const lists = [
    ...organisation.clients.map(({ invokes }, index) => {
      return { invokes, file: ORGANISATION_FILE, path: ["clients", index, "invokes"] };
    }),
    ...partners.map(({ file, partner: { gateway } }) => {
      return { invokes: gateway?.invokes ?? [], file, path: ["gateway", "invokes"] };
    }),
  ];
  return lists.flatMap(({ invokes, file, path }) =>
    invokes.flatMap((agent, index) => {
      const problem = (rule: CrossRule, what: string) => [broken(rule, file, [...path, index], what)];
      if (invokes.indexOf(agent) !== index) return problem("duplicate_agent", `names ${agent} twice`);
      if (offered.has(agent)) return [];
      const message = `${agent} is no agent that ${ORGANISATION_FILE} offers under agents`;
      return problem("agent_not_offered", message);
    }),
  );
}

/** Two agents on one public path: whichever route comes first would answer for both. */
function checkPaths(organisation: Organisation): CrossProblem[] {
  const problems: CrossProblem[] = [];
  const taken = new Map<string, string>();
  for (const [agent, offered] of Object.entries(organisation.agents)) {
    for (const key of ["cardPath", "invokePath"] as const satisfies readonly (keyof OfferedAgent)[]) {
      const path = offered[key];
      const other = taken.get(path) ?? prefixOf(organisation, path, agent, key);
      taken.set(path, `${agent}.${key}`);
      if (other === undefined) continue;
      const message = `is already the path of ${other}`;
      problems.push(broken("path_collision", ORGANISATION_FILE, ["agents", agent, key], message));
    }
  }
  return problems;
}

/** Where the HTTP+JSON binding's operations lie below an agent's invocation path (A2A 1.0, section 11). */
const OPERATION = /^\/(?:message:|tasks(?:\/|$))/;

function prefixOf(organisation: Organisation, path: string, agent: string, key: "cardPath" | "invokePath") {
  const found = Object.entries(organisation.agents).find(
    ([name, { httpJson, invokePath }]) =>
      httpJson &&
      OPERATION.test(path.slice(invokePath.length)) &&
      path.startsWith(invokePath) &&
      !(name === agent && key === "invokePath"),
  );
  return found === undefined ? undefined : `${found[0]}.invokePath (httpJson)`;
}

function checkConsumed(registry: Registry): CrossProblem[] {
  const { organisation, partners } = registry;
  const problems: CrossProblem[] = [];
  const known = new Set([organisation.serverName, ...partners.map(({ partner }) => partner.serverName)]);
  const seen = new Map<string, string>();
  for (const { agent, entry, file, path } of consumptions(registry)) {
    const other = seen.get(agent);
    seen.set(agent, file);
    if (other !== undefined) {
      const message = `${other} consumes an agent of the same name, and both would be one ghost`;
      problems.push(broken("agent_collision", file, path, message));
    }
    for (const key of ["allowedServers", "allowedSenders"] as const) {
      for (const [index, name] of (entry[key] ?? []).entries()) {
        if (known.has(key === "allowedServers" ? name : serverOfSender(name))) continue;
        const message = "names a server that is neither this organisation's own nor any partner's";
        problems.push(broken("unknown_server", file, [...path, key, index], message));
      }
    }
  }
  return problems;
}

export function serverOfSender(sender: string): string {
  if (sender.startsWith("*:")) return parseServerName(sender.slice(2)) ?? "";
  const user = parseUserId(sender);
  return user === undefined ? "" : serverOf(user);
}

/** One endpoint for each secret: or else who edits one partner's file could have another's secret sent to himself. */
function checkCredentials(registry: Registry): CrossProblem[] {
  const problems: CrossProblem[] = [];
  const callers = new Map<string, string>([
    ...registry.organisation.clients.map(({ secret }) => [secretName(secret), ORGANISATION_FILE] as const),
    ...registry.partners.flatMap(({ file, partner: { gateway } }) =>
      gateway?.clientSecret === undefined ? [] : [[secretName(gateway.clientSecret), file] as const],
    ),
  ]);
  const endpoints = new Map<string, { endpoint: string; file: string }>();
  for (const { entry, file, path } of consumptions(registry)) {
    if (entry.credentials === undefined) continue;
    const { clientSecret, tokenEndpoint } = entry.credentials;
    const add = (rule: CrossRule, key: string, message: string) =>
      problems.push(broken(rule, file, [...path, "credentials", key], message));
    const named = secretName(clientSecret);
    const caller = callers.get(named);
    if (caller !== undefined && caller !== file) {
      const message = `is the secret of a client that ${caller} declares, and would be sent to the endpoint`;
      add("secret_of_caller", "clientSecret", message);
    }
    const known = endpoints.get(named);
    if (known === undefined) endpoints.set(named, { endpoint: tokenEndpoint, file });
    else if (known.endpoint !== tokenEndpoint) {
      const message = `is not the endpoint that ${known.file} has the same secret sent to`;
      add("secret_endpoint", "tokenEndpoint", message);
    }
  }
  return problems;
}

function secretName(reference: RegistrySecretReference): string {
  return "file" in reference ? `file ${reference.file}` : `env ${reference.env}`;
}

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

export function thumbprintsElsewhere(registry: Registry, file: string): Set<string> {
  const others = cardKeysIn(registry).filter((one) => one.file !== file);
  return new Set(others.map(({ identity }) => thumbprintOf(identity.jwk)));
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

/** Partners that were removed, and have a new client and an open plane: each needs the record of a re-admission. */
export function readmitted({ partners }: Registry): readonly PartnerEntry[] {
  return partners.filter(
    ({ partner: { planes, retired, azp } }) =>
      retired.clients.length > 0 &&
      !retired.clients.includes(azp) &&
      PLANE_NAMES.some((plane) => planes[plane] === "open"),
  );
}

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
  return [
    { file: ORGANISATION_FILE, serverName: null, retired: { ...NOTHING, ...organisation.retired } },
    ...partners.map(({ file, partner: { serverName, retired } }) => ({ file, serverName, retired })),
  ];
}

/** The files of earlier retirements that a later registry lacks in part; a file may have been renamed. */
export function lostRetirement(earlier: readonly Retirement[], later: Registry): string[] {
  const now = new Map(retirementsIn(later).map(({ serverName, retired }) => [serverName, retired]));
  return earlier.flatMap(({ file, serverName, retired }) =>
    holdsAll(now.get(serverName) ?? NOTHING, retired) ? [] : [file],
  );
}

const NOTHING: Retired = { cardKeys: [], clients: [], serverKeys: [] };

function holdsAll(now: Retired, before: Retired): boolean {
  return (
    withCardKeys(now.cardKeys, before.cardKeys).length === now.cardKeys.length &&
    before.clients.every((client) => now.clients.includes(client)) &&
    before.serverKeys.every((keyId) => now.serverKeys.includes(keyId))
  );
}
