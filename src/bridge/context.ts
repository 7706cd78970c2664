// What a bridge process is started with, and what all of its parts use.
import { resolve } from "node:path";
import type { Logger } from "pino";
import type { Clock, Random } from "../domain/clock.ts";
import { watchAgentsFile } from "./agents/loaded-agents.ts";
import type { BridgeConfig } from "./config.ts";
import { openDatabase } from "./database.ts";
import { createMetrics } from "./metrics.ts";
import { readSecrets } from "./secrets.ts";

export interface BridgeOptions {
  readonly config: BridgeConfig;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly stop: AbortSignal;
}

export type BridgeContext = ReturnType<typeof openContext>;

/** @throws DrawbridgeError when a secret or the agents' file cannot be read */
export function openContext(options: BridgeOptions) {
  const { config, log } = options;
  const secrets = readSecrets(config);
  const metrics = createMetrics();
  const agents = watchAgentsFile({
    file: resolve(config.directory, config.agentsFile),
    serverName: config.homeserver.serverName,
    ghostPrefix: config.appservice.ghostPrefix,
    log,
    onRejected: () => metrics.agentsFileRejected.inc(),
  });
  return { ...options, secrets, metrics, agents, database: openDatabase(config, log) };
}
