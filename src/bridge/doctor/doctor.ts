// `drawbridge doctor`: what is wrong with a bridge's folder and its homeserver, each with a hint.
// Invariants: what could not be examined is reported as not known, never as ok; an agent counts as ok only when its card was
// fetched and verified here; nothing is changed, and no secret and nothing of an unverified card is printed.
import { readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import * as z from "zod";
import { fetchCard } from "../../cards/fetch.ts";
import { importPinnedKey, verifyCard } from "../../cards/verify.ts";
import type { Clock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { type AgentEntry, AgentsFile, mayBePrivate } from "../../rendered-files/agents-file.ts";
import { mapConcurrent } from "../../runtime/concurrency.ts";
import { requestJson } from "../../runtime/http.ts";
import { loadYaml } from "../../runtime/load-yaml.ts";
import { readRegistrySecret, readSecret } from "../../runtime/secrets.ts";
import { isPinned } from "../agents/sender-policy.ts";
import { type BridgeConfig, loadBridgeConfig } from "../config.ts";
import { chooseInterface } from "../delegation/a2a/choose-interface.ts";
import { Readiness } from "../health/health-server.ts";
import { checkHomeserver } from "../health/homeserver-checks.ts";
import { ContentKeys } from "../ledger/content-keys.ts";
import { Homeserver } from "../matrix/homeserver.ts";
import { readSecrets } from "../secrets.ts";
import { type AppserviceTokens, renderRegistration } from "../setup/registration.ts";

export interface Finding {
  readonly name: string;
  /** `not_known`: it could not be examined, or not yet. */
  readonly state: "ok" | "not_known" | "failing";
  readonly found: string;
  readonly hint: string | undefined;
}

const finding =
  (state: Finding["state"]) =>
  (name: string, found: string, hint?: string): Finding => ({ name, state, found, hint });
const well = finding("ok");
const ill = finding("failing");
const notKnown = finding("not_known");

/** A finding of an error that names its hint; any other error is thrown on. */
function failed(name: string, error: unknown): Finding {
  if (!(error instanceof DrawbridgeError)) throw error;
  return ill(name, error.message, error.hint ?? "Correct it, then run the command again.");
}

const PROBE_TIMEOUT_MS = 5_000;
const Readyz = z.object({ checks: z.array(Readiness), encryption: z.string() });

export async function examineBridge(configFile: string, clock: Clock): Promise<readonly Finding[]> {
  let config: BridgeConfig;
  try {
    config = loadBridgeConfig(configFile);
  } catch (error) {
    return [failed("configuration", error)];
  }
  const { tokens, secrets } = examineSecrets(config);
  const findings = [
    well("configuration", configFile),
    secrets,
    ...(await examineAgents(config, clock)),
    well("encryption", config.encryption.mode),
  ];
  const again = "Repair what `secrets` names, then run the doctor again.";
  if (tokens === undefined) return [...findings, notKnown("homeserver, bridge", "not looked at", again)];
  const readiness = await askBridge(config);
  const homeserver = await examineHomeserver(config, tokens, clock, readiness !== undefined);
  return [
    ...findings,
    examineRegistration(config, tokens, homeserver),
    ...homeserver,
    ...examineReadiness(config, readiness),
  ];
}

function examineSecrets(config: BridgeConfig): { tokens: AppserviceTokens | undefined; secrets: Finding } {
  try {
    const tokens = readSecrets(config);
    const { mode, storeKeys } = config.encryption;
    if (mode !== "refuse" && storeKeys !== undefined)
      ContentKeys.parse(readSecret(storeKeys, config.directory));
    readSecret(config.database.url, config.directory);
    return { tokens, secrets: well("secrets", "all there") };
  } catch (error) {
    return { tokens: undefined, secrets: failed("secrets", error) };
  }
}

/** Compares the registration beside the configuration. Without one, a homeserver that works with both tokens counts. */
function examineRegistration(config: BridgeConfig, tokens: AppserviceTokens, homeserver: readonly Finding[]) {
  const file = join(config.directory, "registration.yaml");
  let found: string;
  try {
    found = readFileSync(file, "utf8");
  } catch {
    const absent = `no copy at ${file} to compare`;
    const passed = (name: string) => homeserver.some((one) => one.name === name && one.state === "ok");
    if (passed("token_accepted") && passed("bridge_reachable")) {
      return well("registration", `the homeserver has one with these tokens; ${absent}`);
    }
    const hint =
      "Render it with `drawbridge bridge registration` if the homeserver has none yet; else follow the hints below.";
    return notKnown("registration", absent, hint);
  }
  if (found === renderRegistration(config, tokens)) return well("registration", "as the configuration says");
  const again =
    "Render it again with `drawbridge bridge registration --force`, give it to the homeserver, and restart that and every bridge process.";
  return ill("registration", `${file} is not what the configuration says`, again);
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
    return checks.map(({ name, hint }) => (hint === undefined ? well(name, "yes") : ill(name, "no", hint)));
  } finally {
    await homeserver.close();
  }
}

/** What the running bridge says of itself; undefined when none answers. */
async function askBridge({ observe }: BridgeConfig): Promise<z.output<typeof Readyz> | undefined> {
  try {
    const host = observe.host.includes(":") ? `[${observe.host}]` : observe.host;
    const url = `http://${host}:${observe.port}/readyz`;
    return Readyz.safeParse((await requestJson(url, { timeoutMs: PROBE_TIMEOUT_MS })).body).data;
  } catch {
    return undefined;
  }
}

const RESTART = "Restart the bridge: it reads the mode at its start.";
const OTHER_MODE = ill("bridge: encryption", "it runs in another mode", RESTART);

function examineReadiness({ encryption }: BridgeConfig, readiness: z.output<typeof Readyz> | undefined) {
  if (readiness === undefined) {
    const parts = encryption.mode === "refuse" ? "database and ghosts" : "database, ghosts and their keys";
    const start = "Start it with `drawbridge bridge`, then run the doctor again.";
    return [notKnown("bridge", `not running, so ${parts} are not looked at`, start)];
  }
  const { checks, encryption: mode } = readiness;
  const isReady = checks.every(({ ok, blocking }) => ok || !blocking);
  return [
    ...(isReady ? [well("bridge", "running and ready")] : []),
    // What blocks and is well is said by "ready"; of keys each link is shown.
    ...checks.filter(({ ok, blocking }) => !ok || !blocking).map(findingOf),
    ...(isReady && mode !== encryption.mode ? [OTHER_MODE] : []),
  ];
}

function findingOf({ name, ok, known, found, hint }: z.output<typeof Readiness>): Finding {
  const label = `bridge: ${name}`;
  if (ok) return well(label, found ?? "yes");
  if (!known)
    return notKnown(label, found ?? "not found out yet", hint ?? "Run the doctor again in a minute.");
  return ill(label, found ?? "no", hint ?? "Read the bridge's log.");
}

/** A file may name hundreds of agents. */
const CARDS_AT_ONCE = 16;

/** Whether each agent could be asked now: by its pin, its secret, and a card of the pinned key that names a usable interface. */
async function examineAgents(config: BridgeConfig, clock: Clock): Promise<readonly Finding[]> {
  const file = resolve(config.directory, config.agentsFile);
  let entries: readonly (readonly [string, AgentEntry])[];
  try {
    entries = Object.entries(loadYaml(AgentsFile, file).agents);
  } catch (error) {
    return [failed("agents", error)];
  }
  if (entries.length === 0) {
    const hint =
      "Add an agent to agents.yaml; where it is rendered from a registry, admit a partner or an agent of your own there.";
    return [notKnown("agents", "none in the file: nobody can be asked", hint)];
  }
  const found = await mapConcurrent(entries, CARDS_AT_ONCE, ([name, entry]) =>
    examineAgent(name, entry, dirname(file), clock),
  );
  const problems = found.filter((one) => one !== undefined);
  const good = entries.length - problems.length;
  const total = `${good === entries.length ? good : `${good} of ${entries.length}`} in the file`;
  const verified = "each with a card that was fetched now and is signed by its pinned key";
  return good === 0 ? problems : [well("agents", `${total}, ${verified}`), ...problems];
}

/** What stands in the way of asking an agent; undefined when nothing does. */
async function examineAgent(name: string, entry: AgentEntry, baseDirectory: string, clock: Clock) {
  const label = `agent ${name}`;
  if (!isPinned(entry)) {
    const hint = "Give it a cardIdentity, allowedServers and allowedSenders, or remove it.";
    return ill(label, "not pinned, so never asked", hint);
  }
  try {
    if (entry.credentials) readRegistrySecret(entry.credentials.clientSecret, baseDirectory);
  } catch (error) {
    return failed(label, error);
  }
  const fetched = await fetchCard(entry.cardUrl, {
    clock,
    timeoutMs: PROBE_TIMEOUT_MS,
    mayBePrivate: mayBePrivate(entry, entry.cardUrl),
  });
  if (!fetched.fetched) {
    const { failure, status } = fetched;
    if (failure === "address_not_public") {
      const hint = "If it belongs there, list its origin in allowedOrigins; else the agent is not asked.";
      return ill(label, `the host of ${entry.cardUrl} is at a private address`, hint);
    }
    return ill(
      label,
      `no card at ${entry.cardUrl}: ${failure}${status === undefined ? "" : `, status ${status}`}`,
      "Until it is served again the agent is not asked. Ask its operator whether it runs, whether the address is right, and whether your organisation is admitted there. For a certificate of an authority of your own, set NODE_EXTRA_CA_CERTS.",
    );
  }
  // A key that is no point on the curve is refused with the file.
  const { keyId, jwk } = entry.cardIdentity;
  const verdict = await verifyCard(fetched.bytes, [await importPinnedKey(keyId, jwk)]);
  if (verdict.accepted) {
    if (chooseInterface(verdict.card, entry) !== undefined) return undefined;
    return ill(
      label,
      `the card at ${entry.cardUrl} names no interface that may be called`,
      "See with `drawbridge card fetch` where its interfaces are. If one belongs there, list its origin in allowedOrigins; else ask its operator for one by JSONRPC or HTTP+JSON.",
    );
  }
  return ill(
    label,
    `the card at ${entry.cardUrl} does not verify against its pin: ${verdict.reason}`,
    "The agent is not asked. Ask its operator, by a way that you trust, which key signs the card now; pin no other.",
  );
}
