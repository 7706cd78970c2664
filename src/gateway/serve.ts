// Running a gateway: Envoy as a child, its files following the configuration file.
// Invariants: nothing is put in force that Envoy's validation refuses; a configuration that cannot be
// used leaves the last good one serving; this process ends with Envoy.
import { mkdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Logger } from "pino";
import type { Clock } from "../domain/clock.ts";
import { DrawbridgeError } from "../domain/errors.ts";
import { EnvoyAdmin, NO_STATS } from "./admin.ts";
import { applyLive, placeAll } from "./apply.ts";
import { type GatewayConfig, loadGatewayConfig } from "./config.ts";
import { endLeftover, endOf, findEnvoy, startEnvoy, validateFile } from "./envoy.ts";
import { followFile } from "./follow.ts";
import { placeFile } from "./live-files.ts";
import { BOOTSTRAP_FILE, type RenderedGateway, render, TWIN_FILE } from "./render.ts";

export interface ServeOptions {
  readonly configFile: string;
  readonly clock: Clock;
  readonly log: Logger;
  /** Aborts to end the gateway. */
  readonly stop: AbortSignal;
}

interface InForce {
  readonly config: GatewayConfig;
  readonly rendered: RenderedGateway;
}

/** What only a new Envoy process can take up. */
function needsRestart(current: GatewayConfig, next: GatewayConfig): string | undefined {
  if (current.adminPort !== next.adminPort) return "adminPort";
  for (const key of ["binary", "directory", "concurrency"] as const) {
    if (current.envoy[key] !== next.envoy[key]) return `envoy.${key}`;
  }
  return undefined;
}

/** Loads, renders and has Envoy validate; nothing is in force yet. */
async function prepare(configFile: string, binaryOf: (config: GatewayConfig) => string): Promise<InForce> {
  const config = loadGatewayConfig(configFile);
  const { directory } = config.envoy;
  const rendered = render(config, directory);
  mkdirSync(dirname(config.accessLog), { recursive: true });
  placeFile(directory, TWIN_FILE, rendered.files[TWIN_FILE] ?? "");
  await validateFile(binaryOf(config), join(directory, TWIN_FILE));
  return { config, rendered };
}

function logRefusal(log: Logger, error: unknown): void {
  if (!(error instanceof DrawbridgeError)) throw error;
  log.error(
    { event: "config_refused", code: error.code, reason: error.message, mend: error.mend },
    "the new configuration is not used; the last good one stays in force",
  );
}

/**
 * Runs until `stop` aborts or Envoy ends. Logs `event: "ready"` when Envoy serves the configuration.
 * @returns the exit code: 0 after `stop`
 * @throws ConfigError, DrawbridgeError when the gateway cannot start
 */
export async function serve(options: ServeOptions): Promise<number> {
  const { configFile, clock, log } = options;
  const known = readIfPresent(configFile);
  let inForce = await prepare(configFile, (config) => findEnvoy(config.envoy.binary));
  const { config } = inForce;
  const binary = findEnvoy(config.envoy.binary);
  const directory = config.envoy.directory;
  const bootstrap = join(directory, BOOTSTRAP_FILE);
  await endLeftover(bootstrap, clock);
  placeAll(directory, inForce.rendered);

  const child = startEnvoy(binary, bootstrap, config);
  const ended = new AbortController();
  const end = endOf(child).finally(() => ended.abort());
  const stop = () => child.kill("SIGTERM");
  options.stop.addEventListener("abort", stop, { once: true });
  if (options.stop.aborted) stop();

  const admin = new EnvoyAdmin(config.adminPort, clock);
  const over = AbortSignal.any([options.stop, ended.signal]);
  try {
    await admin.waitForVersions(inForce.rendered.versions, NO_STATS, over);
    logInForce(log, "ready", inForce);
    await followFile(
      configFile,
      known,
      async () => {
        try {
          inForce = await change(inForce, configFile, binary, admin, over);
          logInForce(log, "reloaded", inForce);
        } catch (error) {
          if (!over.aborted) logRefusal(log, error);
        }
      },
      clock,
      over,
    );
  } catch (error) {
    stop();
    await end;
    if (!over.aborted) throw error;
  }
  const code = await end;
  if (options.stop.aborted) return 0;
  log.error({ event: "envoy_ended", exitCode: code }, "Envoy ended by itself");
  return code === 0 ? 1 : code;
}

async function change(
  current: InForce,
  configFile: string,
  binary: string,
  admin: EnvoyAdmin,
  signal: AbortSignal,
): Promise<InForce> {
  const next = await prepare(configFile, () => binary);
  const key = needsRestart(current.config, next.config);
  if (key !== undefined) {
    throw new DrawbridgeError(
      "config_invalid",
      `${configFile}: ${key} cannot change while the gateway runs`,
      {
        mend: "Restart the gateway, or put the old value back.",
      },
    );
  }
  const { directory } = current.config.envoy;
  try {
    await applyLive(directory, current.rendered, next.rendered, admin, signal);
  } catch (error) {
    // Envoy kept what it had; the files must say so too, or the next rename would bring the refused one back.
    placeAll(directory, current.rendered);
    throw error;
  }
  return next;
}

function logInForce(log: Logger, event: "ready" | "reloaded", { config, rendered }: InForce): void {
  log.info(
    {
      event,
      listen: `${config.listen.host}:${config.listen.port}`,
      agents: Object.keys(config.agents).sort(),
      versions: rendered.versions,
    },
    event === "ready" ? "the gateway is serving" : "the new configuration is in force",
  );
}

function readIfPresent(file: string): string | undefined {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return undefined;
  }
}
