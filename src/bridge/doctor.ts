// What is wrong with a bridge's folder and its homeserver, and the mend of each, without touching its database.
// Invariants: what the running bridge knows better is asked of it (/readyz); nothing is changed, made or
// printed that is a secret; one finding that fails does not hide another that can be looked at.
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { request } from "undici";
import { z } from "zod";
import { AgentsFile } from "../admission/agents-file.ts";
import type { Clock } from "../domain/clock.ts";
import { DrawbridgeError } from "../domain/errors.ts";
import { loadYaml } from "../runtime/load-yaml.ts";
import { readSecret } from "../runtime/secrets.ts";
import { isPinned } from "./agents/directory.ts";
import { type BridgeConfig, loadBridgeConfig } from "./config.ts";
import { ContentKeys } from "./ledger/seal.ts";
import { Homeserver } from "./matrix/homeserver.ts";
import { type AppserviceTokens, renderRegistration } from "./matrix/registration.ts";
import { checkHomeserver } from "./matrix/self-check.ts";

export interface Finding {
  readonly name: string;
  readonly ok: boolean;
  readonly found: string;
  /** What the operator should do; undefined when all is well. */
  readonly mend: string | undefined;
}

const PROBE_TIMEOUT_MS = 5_000;

const Readyz = z.object({
  checks: z.array(z.object({ name: z.string(), ok: z.boolean(), mend: z.string().optional() })),
});

const well = (name: string, found: string): Finding => ({ name, ok: true, found, mend: undefined });
const ill = (name: string, found: string, mend: string): Finding => ({ name, ok: false, found, mend });

function failed(name: string, error: unknown): Finding {
  if (!(error instanceof DrawbridgeError)) throw error;
  return ill(name, error.message, error.mend ?? "Correct it and look again.");
}

/** Examines the bridge of a configuration file. */
export async function examineBridge(configFile: string, clock: Clock): Promise<readonly Finding[]> {
  let config: BridgeConfig;
  try {
    config = loadBridgeConfig(configFile);
  } catch (error) {
    return [failed("configuration", error)];
  }
  const { tokens, finding } = readSecrets(config);
  const findings = [well("configuration", configFile), finding, examineAgents(config)];
  if (tokens === undefined) return findings;
  const readiness = await askBridge(config);
  return [
    ...findings,
    examineRegistration(config, tokens),
    ...(await examineHomeserver(config, tokens, clock, readiness !== undefined)),
    ...examineReadiness(readiness),
  ];
}

function readSecrets(config: BridgeConfig): { tokens: AppserviceTokens | undefined; finding: Finding } {
  try {
    const tokens = {
      asToken: readSecret(config.appservice.asToken, config.directory),
      hsToken: readSecret(config.appservice.hsToken, config.directory),
    };
    ContentKeys.parse(readSecret(config.contentKeys, config.directory));
    if ("url" in config.database) readSecret(config.database.url, config.directory);
    return { tokens, finding: well("secrets", "all there") };
  } catch (error) {
    return { tokens: undefined, finding: failed("secrets", error) };
  }
}

function examineAgents(config: BridgeConfig): Finding {
  try {
    const { agents } = loadYaml(AgentsFile, resolve(config.directory, config.agentsFile));
    const unpinned = Object.entries(agents)
      .filter(([, entry]) => !isPinned(entry))
      .map(([name]) => name);
    if (unpinned.length === 0) return well("agents", `${Object.keys(agents).length}, all pinned`);
    return ill(
      "agents",
      `not pinned, so never asked: ${unpinned.join(", ")}`,
      "Give each a cardIdentity, allowedServers and allowedSenders, or remove it.",
    );
  } catch (error) {
    return failed("agents", error);
  }
}

/** Compares the registration beside the configuration, if there is one: elsewhere it cannot be known. */
function examineRegistration(config: BridgeConfig, tokens: AppserviceTokens): Finding {
  const file = join(config.directory, "registration.yaml");
  let found: string;
  try {
    found = readFileSync(file, "utf8");
  } catch {
    return well("registration", `none at ${file}; the homeserver shows below which one it has`);
  }
  if (found === renderRegistration(config, tokens)) return well("registration", "as the configuration says");
  return ill(
    "registration",
    `${file} is not what the configuration says`,
    "Render it again with `drawbridge bridge registration --force`, and restart the homeserver.",
  );
}

async function examineHomeserver(
  config: BridgeConfig,
  { asToken }: AppserviceTokens,
  clock: Clock,
  listening: boolean,
): Promise<Finding[]> {
  const { url, requestTimeout } = config.homeserver;
  const homeserver = new Homeserver({ url, asToken, requestTimeoutMs: requestTimeout, clock });
  try {
    const checks = await checkHomeserver({ config, homeserver, listening });
    return checks.map(({ check, ok, mend }) => ({ name: check, ok, found: ok ? "yes" : "no", mend }));
  } finally {
    await homeserver.close();
  }
}

/** What the running bridge says of itself; undefined when none answers. */
async function askBridge({ observe }: BridgeConfig): Promise<z.output<typeof Readyz> | undefined> {
  try {
    const response = await request(`http://${observe.host}:${observe.port}/readyz`, {
      signal: AbortSignal.timeout(PROBE_TIMEOUT_MS),
    });
    const parsed = Readyz.safeParse(await response.body.json());
    return parsed.success ? parsed.data : undefined;
  } catch {
    return undefined;
  }
}

function examineReadiness(readiness: z.output<typeof Readyz> | undefined): Finding[] {
  if (readiness === undefined) return [well("bridge", "not running; database and ghosts are not looked at")];
  const problems = readiness.checks.filter(({ ok }) => !ok);
  if (problems.length === 0) return [well("bridge", "running and ready")];
  return problems.map(({ name, mend }) => ill(`bridge: ${name}`, "no", mend ?? "Read the bridge's log."));
}
