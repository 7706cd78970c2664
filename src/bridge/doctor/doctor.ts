// `drawbridge doctor`: what is wrong with a bridge's folder and its homeserver, each with a hint. It does not connect
// to the database. Invariants: what could not be examined is reported as not known, never as ok; what only the running
// bridge knows is read from its /readyz; nothing is changed, and no secret is printed; one failing finding hides no
// other that can be examined.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { request } from "undici";
import { z } from "zod";
import type { Clock } from "../../domain/clock.ts";
import { readSecret } from "../../runtime/secrets.ts";
import { type BridgeConfig, loadBridgeConfig } from "../config.ts";
import { checkHomeserver, type SelfCheck } from "../health/homeserver-checks.ts";
import { ContentKeys } from "../ledger/content-keys.ts";
import { Homeserver } from "../matrix/homeserver.ts";
import { type AppserviceTokens, renderRegistration } from "../setup/registration.ts";
import { examineAgents } from "./agents.ts";
import { type Finding, failed, ill, notKnown, well } from "./finding.ts";

const PROBE_TIMEOUT_MS = 5_000;

const Readyz = z.object({
  checks: z.array(
    z.object({
      name: z.string(),
      ok: z.boolean(),
      known: z.boolean().default(true),
      blocking: z.boolean().default(true),
      found: z.string().optional(),
      hint: z.string().optional(),
    }),
  ),
});

/** Examines the bridge of a configuration file. */
export async function examineBridge(configFile: string, clock: Clock): Promise<readonly Finding[]> {
  let config: BridgeConfig;
  try {
    config = loadBridgeConfig(configFile);
  } catch (error) {
    return [failed("configuration", error)];
  }
  const { tokens, finding } = readSecrets(config);
  const findings = [
    well("configuration", configFile),
    finding,
    ...(await examineAgents(config, clock)),
    well("encryption", ENCRYPTION_MODES[config.encryption.mode]),
  ];
  if (tokens === undefined) return findings;
  const readiness = await askBridge(config);
  const homeserver = await examineHomeserver(config, tokens, clock, readiness !== undefined);
  return [
    ...findings,
    examineRegistration(config, tokens, homeserver),
    ...homeserver,
    ...examineReadiness(config, readiness),
  ];
}

const ENCRYPTION_MODES: Readonly<Record<BridgeConfig["encryption"]["mode"], string>> = {
  refuse: "refuse: ghosts have no keys, encrypted rooms are refused",
  devices: "devices: ghosts have keys, encrypted rooms are still refused",
  on: "on: encrypted rooms are read and answered",
};

function readSecrets(config: BridgeConfig): { tokens: AppserviceTokens | undefined; finding: Finding } {
  try {
    const tokens = {
      asToken: readSecret(config.appservice.asToken, config.directory),
      hsToken: readSecret(config.appservice.hsToken, config.directory),
    };
    ContentKeys.parse(readSecret(config.contentKeys, config.directory));
    const { mode, storeKeys } = config.encryption;
    if (mode !== "refuse" && storeKeys !== undefined)
      ContentKeys.parse(readSecret(storeKeys, config.directory));
    readSecret(config.database.url, config.directory);
    return { tokens, finding: well("secrets", "all there") };
  } catch (error) {
    return { tokens: undefined, finding: failed("secrets", error) };
  }
}

/** Compares the registration beside the configuration. Without one, a homeserver that works with both tokens counts. */
function examineRegistration(
  config: BridgeConfig,
  tokens: AppserviceTokens,
  homeserver: readonly Finding[],
): Finding {
  const file = join(config.directory, "registration.yaml");
  let found: string;
  try {
    found = readFileSync(file, "utf8");
  } catch {
    const absent = `no copy at ${file} to compare`;
    const passed = (name: SelfCheck["check"]) =>
      homeserver.some((one) => one.name === name && one.state === "ok");
    if (passed("token_accepted") && passed("bridge_reachable")) {
      return well("registration", `the homeserver has one with these tokens; ${absent}`);
    }
    return notKnown(
      "registration",
      absent,
      "Render it with `drawbridge bridge registration` if the homeserver has none yet; else follow the hints below.",
    );
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
    return checks.map(({ check, hint }) =>
      hint === undefined ? well(check, "yes") : ill(check, "no", hint),
    );
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

const KEY_CHECK = "keys_by_transaction";

function examineReadiness(
  { encryption }: BridgeConfig,
  readiness: z.output<typeof Readyz> | undefined,
): Finding[] {
  if (readiness === undefined) {
    const unseen = encryption.mode === "refuse" ? "database and ghosts" : "database, ghosts and their keys";
    return [
      notKnown(
        "bridge",
        `not running, so ${unseen} are not looked at`,
        "Start it with `drawbridge bridge`, then run the doctor again.",
      ),
    ];
  }
  const { checks } = readiness;
  const isReady = checks.every(({ ok, blocking }) => ok || !blocking);
  const hasKeys = checks.some(({ name }) => name === KEY_CHECK);
  return [
    ...(isReady ? [well("bridge", "running and ready")] : []),
    // What blocks and is well is said by "ready"; of keys each link is shown.
    ...checks.filter(({ ok, blocking }) => !ok || !blocking).map(findingOf),
    ...(isReady && hasKeys !== (encryption.mode !== "refuse")
      ? [
          ill(
            "bridge: encryption",
            "it runs in another mode",
            "Restart the bridge: it reads the mode at its start.",
          ),
        ]
      : []),
  ];
}

function findingOf({ name, ok, known, found, hint }: z.output<typeof Readyz>["checks"][number]): Finding {
  const label = `bridge: ${name}`;
  if (ok) return well(label, found ?? "yes");
  if (!known)
    return notKnown(label, found ?? "not found out yet", hint ?? "Run the doctor again in a minute.");
  return ill(label, found ?? "no", hint ?? "Read the bridge's log.");
}
