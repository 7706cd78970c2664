// What no file can show by itself: names that collide, lists that name what does not exist, servers that
// room ACLs cannot tell apart. Invariant: linear in the number of partners, and every collision is reported.
import { isIpLiteral, parseServerName, parseUserId, serverHost, serverOf } from "../../domain/identifiers.ts";
import type { RegistrySecretReference } from "../../runtime/secrets.ts";
import type { OfferedAgent, Organisation } from "./organisation.ts";
import type { Partner, PartnerEntry, Registry } from "./partner.ts";
import type { CrossProblem } from "./problems.ts";
import { checkRetired } from "./retired-checks.ts";

export const ORGANISATION_FILE = "registry/organisation.yaml";

export function crossCheck({ organisation, partners }: Registry): CrossProblem[] {
  return [
    ...checkServers(organisation, partners),
    ...checkClients(organisation, partners),
    ...checkOffers(organisation, partners),
    ...checkPaths(organisation),
    ...checkConsumed(organisation, partners),
    ...checkCredentials(organisation, partners),
    ...checkRetired({ organisation, partners }, ORGANISATION_FILE),
  ];
}

function checkServers(organisation: Organisation, partners: readonly PartnerEntry[]): CrossProblem[] {
  const problems: CrossProblem[] = [];
  const own = organisation.serverName;
  const names = new Map(partners.map(({ name, file }) => [name, file]));
  const hosts = new Map<string, { server: string; file: string }>();
  const add = (server: string, file: string) => {
    const problem = (rule: string, message: string, hint: string) =>
      problems.push({ file, path: ["serverName"], rule, message, hint });
    const host = serverHost(server);
    const other = hosts.get(host);
    if (other === undefined) hosts.set(host, { server, file });
    else if (other.server === server) {
      if (other.file === ORGANISATION_FILE) {
        problem("own_server", "is this organisation's own server", "Name the partner's server instead.");
      } else {
        problem(
          "duplicate_server",
          `${other.file} names the same server`,
          "Keep one file a partner; the other one may say something else.",
        );
      }
    } else if (other.server.toLowerCase() === server.toLowerCase()) {
      problem(
        "server_case",
        `differs from ${other.server} in ${other.file} in case alone`,
        "Write the name exactly as that homeserver's own server_name is.",
      );
    } else {
      problem(
        "server_host",
        `has the host of ${other.server} in ${other.file}: room ACLs ignore the port, so neither can be ` +
          "closed without the other",
        "Give one of the two servers a host name of its own.",
      );
    }
    if (isIpLiteral(host)) {
      problem(
        "ip_literal",
        "is an IP literal, which every room ACL rendered here refuses",
        "Name the server by a host name.",
      );
    }
  };
  add(own, ORGANISATION_FILE);
  for (const { file, name, partner } of partners) {
    add(partner.serverName, file);
    const namesake = names.get(partner.serverName);
    if (namesake !== undefined && partner.serverName !== name) {
      problems.push({
        file,
        path: ["serverName"],
        rule: "ambiguous_name",
        message: `is also the file name of another partner (${namesake})`,
        hint: "Rename one of the files: a partner is called by its server name or its file's name.",
      });
    }
  }
  return problems;
}

function checkClients(organisation: Organisation, partners: readonly PartnerEntry[]): CrossProblem[] {
  const problems: CrossProblem[] = [];
  const seen = new Map<string, string>();
  const add = (clientId: string, file: string, path: CrossProblem["path"]) => {
    const other = seen.get(clientId);
    if (other === undefined) {
      seen.set(clientId, file);
      return;
    }
    problems.push({
      file,
      path,
      rule: "duplicate_azp",
      message: `is also the client of ${other === file ? "another entry of this file" : other}`,
      hint: "Give each client an ID of its own: whoever shares one shares its access.",
    });
  };
  organisation.clients.forEach(({ clientId }, index) => {
    add(clientId, ORGANISATION_FILE, ["clients", index, "clientId"]);
  });
  for (const { file, partner } of partners) add(partner.azp, file, ["azp"]);
  return problems;
}

function checkOffers(organisation: Organisation, partners: readonly PartnerEntry[]): CrossProblem[] {
  const offered = new Set(Object.keys(organisation.agents));
  const check = (invokes: readonly string[], file: string, path: CrossProblem["path"]): CrossProblem[] =>
    invokes.flatMap((agent, index) => {
      const twice = invokes.indexOf(agent) !== index;
      if (offered.has(agent) && !twice) return [];
      return [
        {
          file,
          path: [...path, index],
          rule: twice ? "duplicate_agent" : "agent_not_offered",
          message: twice
            ? `names ${agent} twice`
            : `${agent} is no agent that ${ORGANISATION_FILE} offers under agents`,
          hint: twice ? "Name it once." : "Offer the agent, or remove it here.",
        },
      ];
    });
  return [
    ...organisation.clients.flatMap(({ invokes }, index) =>
      check(invokes, ORGANISATION_FILE, ["clients", index, "invokes"]),
    ),
    ...partners.flatMap(({ file, partner }) =>
      check(partner.gateway?.invokes ?? [], file, ["gateway", "invokes"]),
    ),
  ];
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
      problems.push({
        file: ORGANISATION_FILE,
        path: ["agents", agent, key],
        rule: "path_collision",
        message: `is already the path of ${other}`,
        hint: "Give each card and each agent a public path of its own.",
      });
    }
  }
  return problems;
}

/** Where the HTTP+JSON binding's operations lie below an agent's invocation path (A2A 1.0, section 11). */
const OPERATION = /^\/(?:message:|tasks(?:\/|$))/;

/** The agent whose HTTP+JSON interface would take this path. */
function prefixOf(
  organisation: Organisation,
  path: string,
  agent: string,
  key: "cardPath" | "invokePath",
): string | undefined {
  const found = Object.entries(organisation.agents).find(
    ([name, { httpJson, invokePath }]) =>
      httpJson &&
      OPERATION.test(path.slice(invokePath.length)) &&
      path.startsWith(invokePath) &&
      !(name === agent && key === "invokePath"),
  );
  return found === undefined ? undefined : `${found[0]}.invokePath (httpJson)`;
}

function checkConsumed(organisation: Organisation, partners: readonly PartnerEntry[]): CrossProblem[] {
  const problems: CrossProblem[] = [];
  const known = new Set([organisation.serverName, ...partners.map(({ partner }) => partner.serverName)]);
  const seen = new Map<string, string>();
  const add = (consumes: Partner["card"]["consumes"], file: string, path: CrossProblem["path"]) => {
    for (const [agent, entry] of Object.entries(consumes)) {
      const other = seen.get(agent);
      seen.set(agent, file);
      if (other !== undefined) {
        problems.push({
          file,
          path: [...path, agent],
          rule: "agent_collision",
          message: `${other} consumes an agent of the same name, and both would be one ghost`,
          hint: "Name it after its organisation, such as org-b-docs-qa.",
        });
      }
      const unknown = (key: string, index: number) => ({
        file,
        path: [...path, agent, key, index],
        rule: "unknown_server",
        message: "names a server that is neither this organisation's own nor any partner's",
        hint: "Correct the name (ports count), or register the partner first.",
      });
      entry.allowedServers?.forEach((server, index) => {
        if (!known.has(server)) problems.push(unknown("allowedServers", index));
      });
      entry.allowedSenders?.forEach((sender, index) => {
        if (!known.has(serverOfSender(sender))) problems.push(unknown("allowedSenders", index));
      });
    }
  };
  add(organisation.consumes, ORGANISATION_FILE, ["consumes"]);
  for (const { file, partner } of partners) add(partner.card.consumes, file, ["card", "consumes"]);
  return problems;
}

/** The server of `@user:server` or `*:server`. */
export function serverOfSender(sender: string): string {
  if (sender.startsWith("*:")) return parseServerName(sender.slice(2)) ?? "";
  const user = parseUserId(sender);
  return user === undefined ? "" : serverOf(user);
}

/**
 * A secret is sent to one token endpoint alone, and what a caller authenticates with is sent where its own file says.
 * Otherwise whoever may edit one partner's file could have another partner's secret sent to an endpoint of his own.
 */
function checkCredentials(organisation: Organisation, partners: readonly PartnerEntry[]): CrossProblem[] {
  const problems: CrossProblem[] = [];
  const callers = new Map<string, string>([
    ...organisation.clients.map(({ secret }) => [secretName(secret), ORGANISATION_FILE] as const),
    ...partners.flatMap(({ file, partner: { gateway } }) =>
      gateway?.clientSecret === undefined ? [] : [[secretName(gateway.clientSecret), file] as const],
    ),
  ]);
  const endpoints = new Map<string, { endpoint: string; file: string }>();
  const entries = [
    ...Object.entries(organisation.consumes).map(
      ([agent, entry]) => [ORGANISATION_FILE, ["consumes", agent], entry] as const,
    ),
    ...partners.flatMap(({ file, partner }) =>
      Object.entries(partner.card.consumes).map(
        ([agent, entry]) => [file, ["card", "consumes", agent], entry] as const,
      ),
    ),
  ];
  for (const [file, path, { credentials }] of entries) {
    if (credentials === undefined) continue;
    const { clientSecret, tokenEndpoint } = credentials;
    const named = secretName(clientSecret);
    const caller = callers.get(named);
    if (caller !== undefined && caller !== file) {
      problems.push({
        ...{ file, path: [...path, "credentials", "clientSecret"], rule: "secret_of_caller" },
        message: `is the secret of a client that ${caller} declares, and would be sent to the endpoint`,
        hint: "Name the secret that the endpoint's operator gave us, in a file or variable of its own.",
      });
    }
    const known = endpoints.get(named);
    if (known === undefined) endpoints.set(named, { endpoint: tokenEndpoint, file });
    else if (known.endpoint !== tokenEndpoint) {
      problems.push({
        ...{ file, path: [...path, "credentials", "tokenEndpoint"], rule: "secret_endpoint" },
        message: `is not the endpoint that ${known.file} has the same secret sent to`,
        hint: "Name a secret of this endpoint's own, or correct the endpoint.",
      });
    }
  }
  return problems;
}

/** What a reference names; a path has one spelling. */
function secretName(reference: RegistrySecretReference): string {
  return "file" in reference ? `file ${reference.file}` : `env ${reference.env}`;
}
