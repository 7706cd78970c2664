// The folder a new bridge starts from: configuration that loads as it is, an empty list of agents, secrets.
// Pure: names and contents only. Invariant: secrets stand in files of their own, never in a configuration.
import { stringify } from "yaml";
import type { Random } from "../../domain/clock.ts";
import type { UnknownObject } from "../../domain/json.ts";

export interface StartingFolderOptions {
  readonly serverName: string;
  readonly homeserverUrl: string;
  readonly appserviceUrl: string;
  readonly listenPort: number;
  readonly observePort: number;
  readonly databaseUrlVariable: string;
}

const TOKEN_BYTES = 32;
const CONTENT_KEY_BYTES = 32;

/** By name. All of them are to be written 0600. */
export function renderStartingFolder(options: StartingFolderOptions, random: Random) {
  const token = () => `${random.bytes(TOKEN_BYTES).toString("base64url")}\n`;
  return {
    "bridge.yaml": bridgeYaml(options),
    "agents.yaml": AGENTS_YAML,
    "secrets/as-token": token(),
    "secrets/hs-token": token(),
    "secrets/content-keys": `${random.bytes(CONTENT_KEY_BYTES).toString("base64")}\n`,
  };
}

function bridgeYaml(options: StartingFolderOptions): string {
  const database = { url: { env: options.databaseUrlVariable } };
  const section = (value: UnknownObject) => stringify(value, { lineWidth: 0 }).trimEnd();
  return `# The bridge of ${options.serverName}. Paths are relative to this file.
# Every setting: docs/reference/schemas/bridge.schema.json
version: 1

${section({ homeserver: { serverName: options.serverName, url: options.homeserverUrl } })}

# After a change here, render the registration again and restart the homeserver.
${section({
  appservice: {
    id: "drawbridge",
    url: options.appserviceUrl,
    senderLocalpart: "drawbridge",
    ghostPrefix: "agent_",
    asToken: { file: "secrets/as-token" },
    hsToken: { file: "secrets/hs-token" },
  },
})}

# The homeserver's transactions come in here.
${section({ listen: { host: "127.0.0.1", port: options.listenPort } })}

# /livez, /readyz and /metrics.
${section({ observe: { host: "127.0.0.1", port: options.observePort } })}

# The bridge's PostgreSQL database: {url: {env: DATABASE_URL}} or {url: {file: secrets/database-url}}.
${section({ database })}

# Seal questions and answers at rest. To rotate: put a new first line, keep the old ones below it.
${section({ contentKeys: { file: "secrets/content-keys" } })}

# How often one sender, and all users of one server, may call agents. Each agent has a rate of its own in agents.yaml, 60 a
# minute unless it says another. While a server may call less often than that, it leaves an agent something for others.
${section({
  limits: { senderRate: { perMinute: 15, burst: 5 }, serverRate: { perMinute: 30, burst: 10 } },
})}

agentsFile: agents.yaml
audit:
  file: audit.jsonl
`;
}

const AGENTS_YAML = `# Which agents have a ghost here, and who may ask them. Reloaded when it changes.
# Every setting: docs/reference/schemas/bridge-agents.schema.json
version: 1
agents: {}

# An entry, instead of the {} above; \`drawbridge card fetch URL\` shows what to pin:
#
# agents:
#   docs-qa:
#     cardUrl: https://agents.example.org/agents/docs-qa/.well-known/agent-card.json
#     cardIdentity:
#       keyId: docs-qa-2026
#       jwk: {kty: EC, crv: P-256, x: ..., y: ...}
#     allowedServers: [example.org]
#     allowedSenders: ["*:example.org"]
`;
