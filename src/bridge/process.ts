// The bridge as a process: what it needs before it may serve, and turn after turn at serving.
// Invariants: a bridge that cannot start asks for nothing; nothing listens before the database is migrated; what
// was acknowledged is durable at every moment.
import { resolve } from "node:path";
import { readSecret } from "../runtime/secrets.ts";
import { openAgentDirectory } from "./agents/directory.ts";
import type { BridgeOptions } from "./context.ts";
import { migrateWhenReachable, openDatabase } from "./database.ts";
import { Leadership } from "./leadership.ts";
import { ContentKeys } from "./ledger/content-keys.ts";
import { isHeldFrom, openLeadershipConnection } from "./ledger/leadership.ts";
import { couldListen } from "./listen.ts";
import { createMetrics } from "./metrics.ts";
import { serve } from "./serve.ts";

/** What handing over may take beyond the drain of what is under way. */
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
  const agents = openAgentDirectory({
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
    // Whoever is asked stops serving: what would keep this one from it is found out before.
    await couldListen(config.listen, "listen", { clock, ended: stop }, () =>
      isHeldFrom(database.pool, config.listen.port).catch(() => false),
    );
    // What hands over stands in line again, and asks for nothing.
    for (let asks = true; !stop.aborted; asks = false) {
      const leadership = new Leadership({
        open: () => openLeadershipConnection(database.url, { clock, port: config.listen.port }),
        mode: config.encryption.mode === "refuse" ? "shared" : "alone",
        patienceMs: config.limits.drain + HAND_OVER_GRACE_MS,
        clock,
        log,
      });
      await serve(options, { agents, database, metrics, secrets }, leadership, asks).finally(() =>
        leadership.end(),
      );
    }
  } finally {
    await agents.close();
    await database.close();
  }
  log.info({ event: "stopped" }, "the bridge has ended");
}
