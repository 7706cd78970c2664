// What no file can show by itself: names that collide, lists that name what does not exist, servers that room ACLs cannot
// tell apart. Invariant: linear in the number of partners, and every collision is reported.
import {
  hostReached,
  isIpLiteral,
  parseServerName,
  parseUserId,
  serverHost,
  serverOf,
} from "../../domain/identifiers.ts";
import { isOperationOf } from "../../rendered-files/gateway-files.ts";
import type { RegistrySecretReference } from "../../runtime/secrets.ts";
import { type OfferedAgent, ORGANISATION_FILE, type Organisation } from "./organisation.ts";
import { consumptions, type Registry } from "./partner.ts";
import { broken, type CrossProblem, type CrossRule } from "./problems.ts";
import { checkRetired, clientsIn } from "./retired-identities-checks.ts";

export const crossCheck = (registry: Registry): CrossProblem[] => [
  ...checkServers(registry),
  ...checkClients(registry),
  ...checkOffers(registry),
  ...checkPaths(registry.organisation),
  ...checkConsumed(registry),
  ...checkCredentials(registry),
  ...checkRetired(registry),
];

function checkServers({ organisation, partners }: Registry): CrossProblem[] {
  const problems: CrossProblem[] = [];
  const names = new Map(partners.map(({ name, file }) => [name, file]));
  const hosts = new Map<string, { server: string; file: string }>();
  const add = (server: string, file: string, name?: string) => {
    const problem = (rule: CrossRule, what: string) =>
      problems.push(broken(rule, file, ["serverName"], what));
    const host = serverHost(server);
    const place = hostReached(server);
    const other = hosts.get(place);
    if (other === undefined) hosts.set(place, { server, file });
    else if (other.server === server) {
      if (other.file === ORGANISATION_FILE) problem("own_server", "is this organisation's own server");
      else problem("duplicate_server", `${other.file} names the same server`);
    } else if (other.server.toLowerCase() === server.toLowerCase()) {
      problem("server_case", `differs from ${other.server} in ${other.file} in case alone`);
    } else {
      const isDotted = serverHost(other.server) !== host;
      const why = isDotted
        ? "one of the two names ends with a dot, and means the same host"
        : "room ACLs ignore the port, so neither can be closed without the other";
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
  const files = new Map<string, string>();
  return clientsIn(registry).flatMap(({ clientId, file, path }) => {
    const other = files.get(clientId);
    files.set(clientId, other ?? file);
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
      const other = taken.get(path) ?? operationAt(organisation, path);
      taken.set(path, `${agent}.${key}`);
      if (other === undefined) continue;
      const message = `is already the path of ${other}`;
      problems.push(broken("path_collision", ORGANISATION_FILE, ["agents", agent, key], message));
    }
  }
  return problems;
}

function operationAt({ agents }: Organisation, path: string) {
  const found = Object.entries(agents).find(([, one]) => one.httpJson && isOperationOf(one.invokePath, path));
  return found === undefined ? undefined : `${found[0]}.invokePath (httpJson)`;
}

function checkConsumed(registry: Registry): CrossProblem[] {
  const { organisation, partners } = registry;
  const problems: CrossProblem[] = [];
  const known = new Set([organisation.serverName, ...partners.map(({ partner }) => partner.serverName)]);
  const files = new Map<string, string>();
  for (const { agent, entry, file, path } of consumptions(registry)) {
    const other = files.get(agent);
    files.set(agent, file);
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
  const callers = new Map<string, string>();
  const call = (file: string, path: CrossProblem["path"], secret: RegistrySecretReference) => {
    const other = callers.get(secretName(secret));
    callers.set(secretName(secret), file);
    if (other === undefined) return;
    problems.push(broken("duplicate_secret", file, path, `is also the secret of a client of ${other}`));
  };
  registry.organisation.clients.forEach(({ secret }, index) => {
    call(ORGANISATION_FILE, ["clients", index, "secret"], secret);
  });
  for (const { file, partner } of registry.partners) {
    if (partner.gateway) call(file, ["gateway", "clientSecret"], partner.gateway.clientSecret);
  }
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

const secretName = (reference: RegistrySecretReference): string =>
  "file" in reference ? `file ${reference.file}` : `env ${reference.env}`;
