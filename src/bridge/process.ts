// The bridge as a process: it reads its files, migrates the database, then leads or stands by until it is stopped.
// Invariants: a bridge that cannot start requests no leadership; nothing listens before the database is migrated; an
// acknowledged transaction is durable at every moment.
import { resolve } from "node:path";
import { readSecret } from "../runtime/secrets.ts";
import { WatchedAgentDirectory } from "./agents/directory.ts";
import type { BridgeOptions } from "./context.ts";
import { migrateWhenReachable, openDatabase } from "./database.ts";
import { type Candidacy, Leadership } from "./leadership.ts";
import { ContentKeys } from "./ledger/content-keys.ts";
import { isLeaderOnPort, openLeadershipConnection } from "./ledger/leadership.ts";
import { couldListen } from "./listen.ts";
import { createMetrics } from "./metrics.ts";
import { serve } from "./serve.ts";

/** How long a hand-over may take beyond the drain. */
const HAND_OVER_GRACE_MS = 15_000;

/**
 * Runs the bridge until `stop` aborts; resolves when it has drained.
 * @throws DrawbridgeError when it cannot start
 */
export async function runBridge(options: BridgeOptions): Promise<void> {
  const { config, clock, log, stop } = options;
  const secret = (reference: Parameters<typeof readSecret>[0]) => readSecret(reference, config.directory);
  const secrets = {
    asToken: secret(config.appservice.asToken),
    hsToken: secret(config.appservice.hsToken),
    keys: ContentKeys.parse(secret(config.contentKeys)),
  };
  const metrics = createMetrics();
  const agents = new WatchedAgentDirectory({
    file: resolve(config.directory, config.agentsFile),
    serverName: config.homeserver.serverName,
    ghostPrefix: config.appservice.ghostPrefix,
    clock,
    log,
    onRejected: () => metrics.agentsFileRejected.inc(),
  });

  const database = openDatabase(config, log);
  try {
    await migrateWhenReachable(database.pool, clock, log, stop).catch((error: unknown) => {
      if (!stop.aborted) throw error;
    });
    // A request makes the present leader stop serving, so a port that this bridge cannot have is found out before.
    await couldListen(config.listen, "listen", { clock, ended: stop }, () =>
      isLeaderOnPort(database.pool, config.listen.port).catch(() => false),
    );
    // A bridge that has handed over becomes a standby.
    for (let candidacy: Candidacy = "request"; !stop.aborted; candidacy = "standby") {
      const leadership = new Leadership({
        open: () => openLeadershipConnection(database.url, { clock, port: config.listen.port }),
        mode: config.encryption.mode === "refuse" ? "shared" : "exclusive",
        handOverTimeoutMs: config.limits.drain + HAND_OVER_GRACE_MS,
        clock,
        log,
      });
      await serve(options, { agents, database, metrics, secrets }, leadership, candidacy).finally(() =>
        leadership.resign(),
      );
    }
  } finally {
    await agents.close();
    await database.close();
  }
  log.info({ event: "stopped" }, "the bridge has ended");
}
