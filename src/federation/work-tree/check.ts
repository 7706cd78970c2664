// Checks of an organisation's repository that need no server: its registry is valid, its rendered files are what the
// registry renders, and no rendered file would do harm.
// Invariants: nothing is written, nothing is contacted; a check that could not be made is not passed; the
// rendered files are judged by what they say, not only by their equality with a fresh render.
import { isDeepStrictEqual } from "node:util";
import { z } from "zod";
import { DrawbridgeError } from "../../domain/errors.ts";
import { AgentsFile } from "../../rendered-files/agents-file.ts";
import { PolicyFile } from "../../rendered-files/border-policy.ts";
import { InvocationFile, PublicationFile } from "../../rendered-files/gateway-files.ts";
import { ClientsFile } from "../../rendered-files/issuer-clients.ts";
import { parseYaml } from "../../runtime/load-yaml.ts";
import { ABUSE_REPORT_SCHEMA, abuseReportSchema } from "../abuse/report.ts";
import { BORDER_POLICY } from "../planes/border/render.ts";
import { CARD_AGENTS, CARD_PUBLICATION } from "../planes/card/render.ts";
import { GATEWAY_CLIENTS, GATEWAY_INVOCATION } from "../planes/gateway/render.ts";
import { assertAdmits } from "../planes/plane.ts";
import { renderAll } from "../planes/render.ts";
import { deniedByEnforcement, refuseUnsafeAcl, serverAcl } from "../planes/rooms/acl.ts";
import { ROOMS_INTENT, RoomsIntent } from "../planes/rooms/render.ts";
import { TRANSPORT_INCLUDE } from "../planes/transport/render.ts";
import { serverOfSender } from "../registry/cross-checks.ts";
import { loadRegistry } from "../registry/load.ts";
import { closedPlanes, type Registry } from "../registry/partner.ts";
import { RegistryError, renderProblem } from "../registry/problems.ts";
import { withoutReadmission } from "../registry/retired-checks.ts";
import { compareRendered } from "./files.ts";

interface CheckResult {
  readonly name: string;
  /** `unknown`: it could not be made because another one failed. */
  readonly result: "ok" | "failed" | "unknown";
  /** What was found, one line each; content-free. */
  readonly found: readonly string[];
}

const TransportInclude = z.object({
  federation_domain_whitelist: z.array(z.string()),
  trusted_key_servers: z.array(z.object({ server_name: z.string() })),
});

/**
 * Checks a repository's files.
 * @param registryFiles everything below registry/, by path in the repository
 * @param rendered the files below rendered/ and kubernetes/
 * @param readmissions the records of re-admissions
 */
export function checkRepository(
  registryFiles: ReadonlyMap<string, string>,
  rendered: ReadonlyMap<string, string>,
  readmissions: ReadonlyMap<string, string> = new Map(),
): readonly CheckResult[] {
  const { registry, results } = checkRegistry(registryFiles);
  const file = (path: string) => rendered.get(`rendered/${path}`);
  const withRegistry = (name: string, check: (registry: Registry) => readonly string[]): CheckResult => {
    if (registry === undefined) return { name, result: "unknown", found: ["the registry is not valid"] };
    const found = listProblems(() => check(registry));
    return { name, result: found.length === 0 ? "ok" : "failed", found };
  };
  const abuse = checkAbuseSchema(registryFiles.get(ABUSE_REPORT_SCHEMA));
  return [
    ...results,
    { name: "abuse-report schema", result: abuse.length === 0 ? "ok" : "failed", found: abuse },
    withRegistry("renders equal the registry", (loaded) =>
      compareRendered(rendered, renderAll(loaded)).map(({ change, path }) => `${path} would be ${change}`),
    ),
    withRegistry("re-admissions are recorded", (loaded) =>
      withoutReadmission(loaded, readmissions.values()).map(
        (file) => `${file} opens a plane to a partner that was removed, and no record names its new client`,
      ),
    ),
    withRegistry("whitelist cuts only the closed", (loaded) =>
      checkWhitelist(loaded, file(TRANSPORT_INCLUDE)),
    ),
    withRegistry("room ACL is safe", (loaded) => checkAcl(loaded, file(ROOMS_INTENT))),
    withRegistry("policy admits the own server", (loaded) => checkPolicy(loaded, file(BORDER_POLICY))),
    withRegistry("cards and pins", (loaded) => checkCards(loaded, file(CARD_AGENTS), file(CARD_PUBLICATION))),
    withRegistry("callers and clients", (loaded) =>
      checkCallers(loaded, file(GATEWAY_INVOCATION), file(GATEWAY_CLIENTS)),
    ),
    withRegistry("Kubernetes sizes", () => [...rendered].flatMap(([path, text]) => tooLarge(path, text))),
  ];
}

function checkRegistry(files: ReadonlyMap<string, string>): {
  readonly registry: Registry | undefined;
  readonly results: readonly CheckResult[];
} {
  let registry: Registry | undefined;
  let problems: readonly string[] = [];
  let secrets: readonly string[] = [];
  try {
    registry = loadRegistry(files);
  } catch (error) {
    if (!(error instanceof RegistryError)) throw error;
    const isSecret = ({ rule }: { rule: string }) => rule.startsWith("secret.");
    secrets = error.problems.filter(isSecret).map(renderProblem);
    problems = error.problems.filter((problem) => !isSecret(problem)).map(renderProblem);
  }
  const result = (name: string, found: readonly string[]): CheckResult => ({
    ...{ name, found },
    result: found.length === 0 ? "ok" : "failed",
  });
  return { registry, results: [result("registry is valid", problems), result("no secrets", secrets)] };
}

/** Runs a check; what it throws as an operator's error is one more thing that was found. */
function listProblems(check: () => readonly string[]): readonly string[] {
  try {
    return check();
  } catch (error) {
    if (error instanceof DrawbridgeError) return error.message.split("\n");
    throw error;
  }
}

function checkAbuseSchema(text: string | undefined): readonly string[] {
  if (text === undefined)
    return [`${ABUSE_REPORT_SCHEMA} is missing: \`drawbridge federation render\` writes it`];
  try {
    if (isDeepStrictEqual(JSON.parse(text), JSON.parse(abuseReportSchema()))) return [];
  } catch {
    // Reported below.
  }
  return [`${ABUSE_REPORT_SCHEMA} is not the schema that reports are read by`];
}

function checkWhitelist(registry: Registry, text: string | undefined): readonly string[] {
  if (text === undefined) return missing(TRANSPORT_INCLUDE);
  const include = parseYaml(TransportInclude, text, `rendered/${TRANSPORT_INCLUDE}`);
  assertAdmits(registry, "transport", TRANSPORT_INCLUDE, include.federation_domain_whitelist);
  const cut = closedServers(registry, "transport");
  return include.trusted_key_servers
    .filter(({ server_name }) => cut.has(server_name))
    .map(
      ({ server_name }) =>
        `rendered/${TRANSPORT_INCLUDE} names ${server_name} as a key server, which is closed`,
    );
}

function checkPolicy(registry: Registry, text: string | undefined): readonly string[] {
  if (text === undefined) return missing(BORDER_POLICY);
  const policy = parseYaml(PolicyFile, text, `rendered/${BORDER_POLICY}`);
  assertAdmits(registry, "border", BORDER_POLICY, policy.allowed_servers);
  const denied = registry.organisation.border.inviteRule === "deny_all";
  return denied === (policy.invite_rule === "deny_all")
    ? []
    : [`rendered/${BORDER_POLICY} has another invite rule than the registry`];
}

function checkAcl(registry: Registry, text: string | undefined): readonly string[] {
  if (text === undefined) return missing(ROOMS_INTENT);
  const intent = parseYaml(RoomsIntent, text, `rendered/${ROOMS_INTENT}`);
  const acl = serverAcl(intent.allow);
  const closed = closedServers(registry, "rooms");
  const open = registry.partners.map(({ partner }) => partner.serverName).filter((name) => !closed.has(name));
  refuseUnsafeAcl(acl, [registry.organisation.serverName, ...open]);
  const isDenied = deniedServers(acl, [...closed]);
  const listed = new Set(intent.closing.map(({ serverName }) => serverName));
  return [
    ...(intent.own === registry.organisation.serverName ? [] : ["its own server is another"]),
    ...[...closed]
      .filter((name) => !isDenied.has(name))
      .map((name) => `it would admit ${name}, which is closed`),
    ...[...closed].filter((name) => !listed.has(name)).map((name) => `it does not close ${name}`),
    ...[...listed].filter((name) => !closed.has(name)).map((name) => `it closes ${name}, which is open`),
  ].map((what) => `rendered/${ROOMS_INTENT}: ${what}`);
}

function deniedServers(acl: ReturnType<typeof serverAcl>, servers: readonly string[]): ReadonlySet<string> {
  return new Set(servers.filter((server) => deniedByEnforcement(acl, server)));
}

function checkCards(
  registry: Registry,
  agentsText: string | undefined,
  publicationText: string | undefined,
): readonly string[] {
  if (agentsText === undefined) return missing(CARD_AGENTS);
  if (publicationText === undefined) return missing(CARD_PUBLICATION);
  const { agents } = parseYaml(AgentsFile, agentsText, `rendered/${CARD_AGENTS}`);
  parseYaml(PublicationFile, publicationText, `rendered/${CARD_PUBLICATION}`);
  const closed = closedServers(registry, "card");
  return Object.entries(agents).flatMap(([name, { allowedServers, allowedSenders }]) =>
    [...new Set([...allowedServers, ...allowedSenders.map(serverOfSender)])]
      .filter((server) => closed.has(server))
      .map((server) => `rendered/${CARD_AGENTS}: ${name} may be asked from ${server}, which is closed`),
  );
}

function checkCallers(
  registry: Registry,
  invocationText: string | undefined,
  clientsText: string | undefined,
): readonly string[] {
  if (invocationText === undefined) return missing(GATEWAY_INVOCATION);
  if (clientsText === undefined) return missing(GATEWAY_CLIENTS);
  const { agents } = parseYaml(InvocationFile, invocationText, `rendered/${GATEWAY_INVOCATION}`);
  const { clients } = parseYaml(ClientsFile, clientsText, `rendered/${GATEWAY_CLIENTS}`);
  const closed = new Set(
    registry.partners
      .filter(({ partner }) => closedPlanes(partner).includes("gateway"))
      .map(({ partner }) => partner.azp),
  );
  return [
    ...Object.entries(agents).flatMap(([name, agent]) =>
      agent.clients
        .filter((client) => closed.has(client))
        .map((client) => `rendered/${GATEWAY_INVOCATION}: ${client} may invoke ${name}, and is closed`),
    ),
    ...clients
      .filter(({ clientId, enabled }) => enabled && closed.has(clientId))
      .map(({ clientId }) => `rendered/${GATEWAY_CLIENTS}: ${clientId} is enabled, and is closed`),
  ];
}

const CONFIG_MAP_BYTES_MAX = 1_048_576;
const EXPRESSION_MAX = 16_384;

/** What of a Kubernetes file a cluster would refuse for its size. An expression is rendered on one line. */
function tooLarge(path: string, text: string): readonly string[] {
  if (!path.startsWith("kubernetes/")) return [];
  const hasLongLine = text.split("\n").some((line) => line.length > EXPRESSION_MAX);
  return [
    ...(Buffer.byteLength(text) > CONFIG_MAP_BYTES_MAX
      ? [`${path} is larger than a ConfigMap may be (1 MiB)`]
      : []),
    ...(hasLongLine
      ? [`${path} has a line that is longer than an expression may be (${EXPRESSION_MAX})`]
      : []),
  ];
}

function closedServers(registry: Registry, plane: "transport" | "rooms" | "card"): ReadonlySet<string> {
  return new Set(
    registry.partners
      .filter(({ partner }) => closedPlanes(partner).includes(plane))
      .map(({ partner }) => partner.serverName),
  );
}

function missing(path: string): readonly string[] {
  return [`rendered/${path} is missing`];
}
