// What a bridge process is started with, and what all of its parts use.
import type { Logger } from "pino";
import type { Clock, Random } from "../domain/clock.ts";
import type { WatchedAgentDirectory } from "./agents/loaded-agents.ts";
import type { BridgeConfig } from "./config.ts";
import type { Database } from "./database.ts";
import type { ContentKeys } from "./ledger/content-keys.ts";
import type { Metrics } from "./metrics.ts";

export interface BridgeOptions {
  readonly config: BridgeConfig;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly stop: AbortSignal;
}

export interface BridgeContext {
  readonly agents: WatchedAgentDirectory;
  readonly database: Database;
  readonly metrics: Metrics;
  readonly secrets: { readonly asToken: string; readonly hsToken: string; readonly keys: ContentKeys };
}
