// A work tree of the organisation's repository: read, rendered, and checked without a server. Invariants: a check that could
// not be made is not passed; rendered files are judged by what they say, not only by their equality with a fresh render; no
// symbolic link is followed, so nothing outside the tree is read or written; only what the caller renders is written or removed.
import { lstatSync, readdirSync, rmSync, statSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { isDeepStrictEqual } from "node:util";
import type * as z from "zod";
import { DrawbridgeError } from "../../domain/errors.ts";
import { parseJson } from "../../domain/json.ts";
import { AgentsFile } from "../../rendered-files/agents-file.ts";
import { PolicyFile } from "../../rendered-files/border-policy.ts";
import { InvocationFile, PublicationFile } from "../../rendered-files/gateway-files.ts";
import { ClientsFile } from "../../rendered-files/issuer-clients.ts";
import { parseYaml } from "../../runtime/load-yaml.ts";
import { readInput } from "../../runtime/read-input.ts";
import { PUBLIC, writeWhole } from "../../runtime/write-file.ts";
import { ABUSE_REPORT_SCHEMA, abuseReportSchema } from "../abuse/report.ts";
import type { PlaneName } from "../plane-order.ts";
import { BORDER_POLICY } from "../planes/border/render.ts";
import { CARD_AGENTS, CARD_PUBLICATION } from "../planes/card/render.ts";
import { GATEWAY_CLIENTS, GATEWAY_INVOCATION } from "../planes/gateway/render.ts";
import { assertAdmits } from "../planes/plane.ts";
import { renderAll } from "../planes/render.ts";
import { enforcementOf, refuseUnsafeAcl, serverAcl } from "../planes/rooms/acl.ts";
import { ROOMS_INTENT, RoomsIntent } from "../planes/rooms/render.ts";
import { TRANSPORT_INCLUDE, TransportInclude } from "../planes/transport/render.ts";
import { READMISSIONS } from "../registry/committed-records.ts";
import { serverOfSender } from "../registry/cross-checks.ts";
import { loadRegistry } from "../registry/load.ts";
import { type Partner, planeState, type Registry } from "../registry/partner.ts";
import { RegistryError, type RegistryProblem, renderProblem } from "../registry/problems.ts";
import { withoutReadmission } from "../registry/retired-identities-checks.ts";

/** Files are given by their path in the repository: those of the registry, the renders, the records of re-admissions. */
export function checkRepository(
  registryFiles: ReadonlyMap<string, string>,
  rendered: ReadonlyMap<string, string>,
  readmissions: ReadonlyMap<string, string> = new Map(),
) {
  const { registry, results } = checkRegistry(registryFiles);
  const read: Read = (schema, path) => {
    const [name, text] = [`rendered/${path}`, rendered.get(`rendered/${path}`)];
    if (text !== undefined) return parseYaml(schema, text, name);
    throw new DrawbridgeError("config_unreadable", `${name} is missing`);
  };
  const withRegistry = (name: string, check: (registry: Registry) => readonly string[]) => {
    if (registry === undefined)
      return { ...resultOf(name, ["the registry is not valid"]), result: "unknown" as const };
    try {
      return resultOf(name, check(registry));
    } catch (error) {
      if (error instanceof DrawbridgeError) return resultOf(name, error.message.split("\n"));
      throw error;
    }
  };
  return [
    ...results,
    resultOf("abuse-report schema", checkAbuseSchema(registryFiles.get(ABUSE_REPORT_SCHEMA))),
    withRegistry("renders equal the registry", (loaded) =>
      compareRendered(rendered, renderAll(loaded)).map(
        ({ change, path }) => `${path} would be ${change} by \`drawbridge federation render\``,
      ),
    ),
    withRegistry("re-admissions are recorded", (loaded) =>
      withoutReadmission(loaded, readmissions.values()).map(
        (file) => `${file} opens a plane to a partner that was removed, and no record names its new client`,
      ),
    ),
    withRegistry("whitelist cuts only the closed", (loaded) => checkWhitelist(loaded, read)),
    withRegistry("room ACL is safe", (loaded) => checkAcl(loaded, read)),
    withRegistry("policy admits the own server", (loaded) => checkPolicy(loaded, read)),
    withRegistry("cards and pins", (loaded) => checkCards(loaded, read)),
    withRegistry("callers and clients", (loaded) => checkCallers(loaded, read)),
    withRegistry("Kubernetes sizes", () => [...rendered].flatMap(([path, text]) => tooLarge(path, text))),
  ];
}

/** A file below rendered/. @throws DrawbridgeError when it is missing or has another form */
type Read = <Schema extends z.ZodType>(schema: Schema, path: string) => z.output<Schema>;

function checkRegistry(files: ReadonlyMap<string, string>) {
  let registry: Registry | undefined;
  let problems: readonly RegistryProblem[] = [];
  try {
    registry = loadRegistry(files);
  } catch (error) {
    if (!(error instanceof RegistryError)) throw error;
    problems = error.problems;
  }
  const found = (isSecret: boolean) =>
    problems.filter(({ rule }) => rule.startsWith("secret.") === isSecret).map(renderProblem);
  const results = [resultOf("registry is valid", found(false)), resultOf("no secrets", found(true))];
  return { registry, results };
}

function resultOf(name: string, found: readonly string[]) {
  const result: "ok" | "failed" | "unknown" = found.length === 0 ? "ok" : "failed";
  return { name, result, found };
}

function checkAbuseSchema(text: string | undefined): readonly string[] {
  if (text === undefined)
    return [`${ABUSE_REPORT_SCHEMA} is missing: \`drawbridge federation render\` writes it`];
  if (isDeepStrictEqual(parseJson(text), parseJson(abuseReportSchema()))) return [];
  return [`${ABUSE_REPORT_SCHEMA} is not the schema that reports are read by`];
}

function checkWhitelist(registry: Registry, read: Read): readonly string[] {
  const include = read(TransportInclude, TRANSPORT_INCLUDE);
  assertAdmits(registry, "transport", TRANSPORT_INCLUDE, include.federation_domain_whitelist);
  const cut = closedTo(registry, "transport");
  const servers = include.trusted_key_servers.map(({ server_name }) => server_name);
  return servers
    .filter((server) => cut.has(server))
    .map((server) => `rendered/${TRANSPORT_INCLUDE} names ${server} as a key server, which is closed`);
}

function checkPolicy(registry: Registry, read: Read): readonly string[] {
  const policy = read(PolicyFile, BORDER_POLICY);
  assertAdmits(registry, "border", BORDER_POLICY, policy.allowed_servers);
  const denied = registry.organisation.border.inviteRule === "deny_all";
  if (denied === (policy.invite_rule === "deny_all")) return [];
  return [`rendered/${BORDER_POLICY} has another invite rule than the registry`];
}

function checkAcl(registry: Registry, read: Read): readonly string[] {
  const intent = read(RoomsIntent, ROOMS_INTENT);
  const acl = serverAcl(intent.allow);
  const closed = closedTo(registry, "rooms");
  const open = registry.partners.map(({ partner }) => partner.serverName).filter((name) => !closed.has(name));
  refuseUnsafeAcl(acl, [registry.organisation.serverName, ...open]);
  const isDenied = enforcementOf(acl);
  const listed = new Set(intent.closing.map(({ serverName }) => serverName));
  return [
    ...(intent.own === registry.organisation.serverName ? [] : ["its own server is another"]),
    ...[...closed].filter((name) => !isDenied(name)).map((name) => `it would admit ${name}, which is closed`),
    ...[...closed].filter((name) => !listed.has(name)).map((name) => `it does not close ${name}`),
    ...[...listed].filter((name) => !closed.has(name)).map((name) => `it closes ${name}, which is open`),
  ].map((what) => `rendered/${ROOMS_INTENT}: ${what}`);
}

function checkCards(registry: Registry, read: Read): readonly string[] {
  const { agents } = read(AgentsFile, CARD_AGENTS);
  read(PublicationFile, CARD_PUBLICATION);
  const closed = closedTo(registry, "card");
  return Object.entries(agents).flatMap(([name, { allowedServers, allowedSenders }]) =>
    [...new Set([...allowedServers, ...allowedSenders.map(serverOfSender)])]
      .filter((server) => closed.has(server))
      .map((server) => `rendered/${CARD_AGENTS}: ${name} may be asked from ${server}, which is closed`),
  );
}

function checkCallers(registry: Registry, read: Read): readonly string[] {
  const { agents } = read(InvocationFile, GATEWAY_INVOCATION);
  const { clients } = read(ClientsFile, GATEWAY_CLIENTS);
  const closed = closedTo(registry, "gateway", ({ azp }) => azp);
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
  const line = `${path} has a line that is longer than an expression may be (${EXPRESSION_MAX})`;
  const isLarge = Buffer.byteLength(text) > CONFIG_MAP_BYTES_MAX;
  const size = `${path} is larger than a ConfigMap may be (1 MiB)`;
  return [isLarge ? size : [], hasLongLine ? line : []].flat();
}

function closedTo({ partners }: Registry, plane: PlaneName, nameOf = (one: Partner) => one.serverName) {
  const closed = partners.filter(({ partner }) => planeState(partner, plane) === "closed");
  return new Set(closed.map(({ partner }) => nameOf(partner)));
}

/** A work tree's registry and what is rendered, by path in the repository. @throws DrawbridgeError `config_unreadable` */
function readWorkTree(directory: string) {
  const registry = readFolder(directory, "registry");
  const rendered = new Map([...readFolder(directory, "rendered"), ...readFolder(directory, "kubernetes")]);
  if (registry.size > 0) return { registry, rendered };
  const hint = "Name the work tree of the organisation's repository: it holds registry/organisation.yaml.";
  throw new DrawbridgeError("config_unreadable", `${directory} has no registry`, { hint });
}

/** Reads a work tree and checks it. @throws DrawbridgeError `config_unreadable` */
export function checkFolder(directory: string) {
  const { registry, rendered } = readWorkTree(directory);
  return checkRepository(registry, rendered, readFolder(directory, READMISSIONS));
}

/** Brings what a work tree renders up to date with its registry. @throws RegistryError; DrawbridgeError `config_unreadable` */
export function renderFolder(directory: string) {
  const { registry, rendered } = readWorkTree(directory);
  const wanted = new Map([...renderAll(loadRegistry(registry)), [ABUSE_REPORT_SCHEMA, abuseReportSchema()]]);
  const schema = [...registry].filter(([path]) => path === ABUSE_REPORT_SCHEMA);
  const changes = compareRendered(new Map([...rendered, ...schema]), wanted);
  for (const { path } of changes) {
    const text = wanted.get(path);
    if (text === undefined) rmSync(join(directory, path));
    else writeWhole(join(directory, path), text, PUBLIC);
  }
  return changes;
}

const compareRendered = (found: ReadonlyMap<string, string>, rendered: ReadonlyMap<string, string>) =>
  [...new Set([...found.keys(), ...rendered.keys()])].sort().flatMap((path) => {
    const [old, wanted] = [found.get(path), rendered.get(path)];
    if (old === wanted) return [];
    return [{ change: old === undefined ? "added" : wanted === undefined ? "removed" : "changed", path }];
  });

function readFolder(directory: string, folder: string): Map<string, string> {
  const root = join(directory, folder);
  const isFolder = statSync(directory, { throwIfNoEntry: false })?.isDirectory();
  const stat = isFolder && lstatSync(root, { throwIfNoEntry: false });
  if (!stat) return new Map();
  if (!stat.isDirectory()) throw unreadable(folder, "is no folder");
  const files = new Map<string, string>();
  for (const entry of readdirSync(root, { recursive: true, withFileTypes: true })) {
    const file = join(entry.parentPath, entry.name);
    const path = relative(directory, file).split(sep).join("/");
    if (entry.isFile()) files.set(path, readInput(file, HINT).toString("utf8"));
    else if (!entry.isDirectory()) throw unreadable(path, "is neither a file nor a folder");
  }
  return files;
}

const HINT = "Put a plain file or folder there that this user may read; links are not followed.";

const unreadable = (path: string, what: string): DrawbridgeError =>
  new DrawbridgeError("config_unreadable", `${path} ${what}`, { hint: HINT });
