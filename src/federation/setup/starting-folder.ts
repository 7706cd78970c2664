// The folder that federation control starts from. Invariants: nothing that is there already is touched; everything is
// checked before anything is written; the first commit admits nobody, and keeps the agents that a bridge carries.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { parse, stringify } from "yaml";
import * as z from "zod";
import type { Clock, Random } from "../../domain/clock.ts";
import { quoted } from "../../domain/printable.ts";
import { AgentsFile } from "../../rendered-files/agents-file.ts";
import { ListenAddress, parseYaml } from "../../runtime/load-yaml.ts";
import { readInput } from "../../runtime/read-input.ts";
import { createFile, readIfPresent, requireAbsent } from "../../runtime/write-file.ts";
import { ABUSE_REPORT_SCHEMA, abuseReportSchema } from "../abuse/report.ts";
import { renderAll } from "../planes/render.ts";
import { loadRegistry } from "../registry/load.ts";
import { ORGANISATION_FILE } from "../registry/organisation.ts";
import { gitOk } from "../repository/git.ts";
import { Repository, writeCommit } from "../repository/repository.ts";

export interface StartingOptions {
  readonly serverName: string;
  readonly homeserverUrl: string;
  /** The bridge's folder; undefined where this organisation runs no bridge. */
  readonly bridge: string | undefined;
}

const CONFIG = "federation.yaml";
const PARTNERS_FOLDER_MARK = "registry/partners/.gitkeep";
const REPOSITORY = "control.git";
const STATUS_TOKEN = "secrets/border-status-token";
const TOKEN_BYTES = 24;

/** Returns what was made. @throws DrawbridgeError `usage` when it is there; `config_*` when agents cannot be taken over */
export async function makeStartingFolder(
  directory: string,
  options: StartingOptions,
  { clock, random }: { readonly clock: Clock; readonly random: Random },
): Promise<readonly string[]> {
  const made = [CONFIG, STATUS_TOKEN, REPOSITORY].map((name) => join(directory, name));
  requireAbsent(made);
  const registry = new Map([[ORGANISATION_FILE, organisationYaml(options)]]);
  const changes = new Map([
    ...registry,
    ...renderAll(loadRegistry(registry)),
    [ABUSE_REPORT_SCHEMA, abuseReportSchema()],
    // git knows no folders, and the first partner's file is written into this one.
    [PARTNERS_FOLDER_MARK, ""],
  ]);

  createFile(join(directory, CONFIG), federationYaml(options));
  createFile(join(directory, STATUS_TOKEN), `${random.bytes(TOKEN_BYTES).toString("hex")}\n`);
  const path = join(directory, REPOSITORY);
  mkdirSync(path, { mode: 0o700 });
  await gitOk(["init", "--quiet", "--bare", "--initial-branch=main", "."], { cwd: path });
  const repository = await Repository.open(path, "main");
  const author = authorOf(options);
  const message = `The registry of ${options.serverName}\n`;
  const revision = await writeCommit(repository, { parents: [], changes, message, author, at: clock.now() });
  await gitOk(["update-ref", repository.ref, revision, ""], repository.call());
  return made;
}

function authorOf({ serverName }: StartingOptions) {
  return { name: `Operations of ${serverName}`, email: `ops@${serverName}` };
}

function organisationYaml({ serverName, bridge }: StartingOptions): string {
  const consumes = bridge === undefined ? {} : agentsOf(join(bridge, "agents.yaml"));
  return `# What this organisation is and offers. Every key: docs/reference/registry.md
version: 1
serverName: ${quoted(serverName)}

# Agents that partners may be admitted to; a gateway publishes them:
# agents:
#   docs-qa:
#     upstream: http://127.0.0.1:4100/
#     cardPath: /agents/docs-qa/.well-known/agent-card.json
#     invokePath: /agents/docs-qa/rpc

# Agents that our bridge has ghosts for and no partner publishes. The bridge's agents.yaml is rendered from here.
${stringify({ consumes }, { lineWidth: 0 }).trimEnd()}

quotas:
  default: {perMinute: 60, burst: 20}
`;
}

function agentsOf(file: string): unknown {
  const text = readInput(file, "Name the folder of bridge.yaml with --bridge.").toString("utf8");
  parseYaml(AgentsFile, text, file);
  return (parse(text) as { readonly agents: unknown }).agents;
}

const OBSERVE = { host: "127.0.0.1", port: 29_341 };
const Observed = z.looseObject({ observe: ListenAddress });

/** Where the bridge says that it is ready. @throws ConfigError when its configuration does not say where */
function healthUrlOf(bridge: string | undefined): string {
  const file = join(bridge ?? "", "bridge.yaml");
  const text = bridge === undefined ? undefined : readIfPresent(file);
  const { host, port } = text === undefined ? OBSERVE : parseYaml(Observed, text, file).observe;
  // Who listens on every address is asked on this machine's own.
  const asked = ({ "0.0.0.0": "127.0.0.1", "::": "::1" } as Readonly<Record<string, string>>)[host] ?? host;
  return `http://${asked.includes(":") ? `[${asked}]` : asked}:${port}/readyz`;
}

function federationYaml(options: StartingOptions): string {
  const { homeserverUrl, bridge } = options;
  const { name, email } = authorOf(options);
  const folder = bridge ?? "/etc/drawbridge";
  const card = {
    agentsFile: join(folder, "agents.yaml"),
    bridgeAuditFile: join(folder, "audit.jsonl"),
    bridgeHealthUrl: healthUrlOf(bridge),
  };
  const cardLines = stringify({ card }, { lineWidth: 0 }).trimEnd();
  return `# Federation control of ${options.serverName}. Paths are relative to this file.
# Every setting: docs/reference/configuration.md
version: 1

repository:
  path: ${REPOSITORY}                  # bare; people push to it
  author: {name: ${quoted(name)}, email: ${quoted(email)}}
  # Only commits that are signed by these keys are applied. As long as this is absent, whoever may push decides.
  # allowedSignersFile: allowed-signers
  # signingKeyFile: secrets/commit-key

homeserver:
  url: ${quoted(homeserverUrl)}
  operatorToken: {file: secrets/operator-token}   # access token of an administrator; to be written by hand
  signingKeyFile: /etc/matrix-synapse/signing.key

# Plane 1: the file that Synapse reads beside homeserver.yaml, and how Synapse is restarted.
transport:
  includeFile: /var/lib/drawbridge/homeserver.d/federation.yaml
  restart: {command: [sudo, /usr/bin/systemctl, restart, matrix-synapse]}

# Plane 3: what the border module inside Synapse reads and writes.
border:
  policyFile: /var/lib/drawbridge/policy.json
  statusToken: {file: ${STATUS_TOKEN}}
  violationsFile: /var/log/drawbridge/violations.jsonl

# Plane 4: the bridge's own files. Absent: no bridge is managed here.
${bridge === undefined ? cardLines.replaceAll(/^/gm, "# ") : cardLines}

# Planes 4 and 5. Absent: no agent is published here.
# gateway:
#   publicationFile: /etc/drawbridge/publication.yaml
#   invocationFile: /etc/drawbridge/invocation.yaml
#   stateFile: /etc/drawbridge/state.json
#   accessLog: /etc/drawbridge/access.jsonl
#   url: https://agents.example.org
#   issuer: {adapter: declared_clients, clientsFile: /etc/drawbridge/clients.yaml}

# /metrics.
reconcile:
  observe: {port: 29342}
`;
}
