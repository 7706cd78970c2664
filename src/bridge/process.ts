// A bridge as a process: it reads its files, migrates the database, works, and drains when it is stopped. Any number of
// processes work on one database.
// Invariants: nothing listens before the database is migrated; no work begins, and no transaction is taken, on a database
// that was put back; an acknowledged transaction is durable at every moment; a drain first stops taking transactions and
// gives its ghosts to the other processes, then lets work end or releases it; a port that stays in use is an error with a hint.
import { once } from "node:events";
import { resolve } from "node:path";
import type { Clock } from "../domain/clock.ts";
import { DrawbridgeError } from "../domain/errors.ts";
import { closeServer } from "../runtime/http.ts";
import { readSecret } from "../runtime/secrets.ts";
import { WatchedAgentDirectory } from "./agents/loaded-agents.ts";
import type { BridgeContext, BridgeOptions } from "./context.ts";
import { migrateWhenReachable, openDatabase } from "./database.ts";
import { createObserveServer, databaseReadiness, HomeserverReadiness } from "./health/health-server.ts";
import { selfCheck } from "./health/homeserver-checks.ts";
import { ContentKeys } from "./ledger/content-keys.ts";
import { createMetrics } from "./metrics.ts";
import { type BridgeServices, createServices } from "./services.ts";

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
    if (!stop.aborted) await serve(options, { agents, database, metrics, secrets });
  } finally {
    await agents.close();
    await database.close();
  }
  log.info({ event: "stopped" }, "the bridge has ended");
}

async function serve(options: BridgeOptions, context: BridgeContext): Promise<void> {
  const { config, clock, log, stop } = options;
  const { agents, database, metrics } = context;
  const services = createServices(options, context);
  const { ownership, homeserver, encryption, intake, audit, closeDelegations, workers, restoreGuard } =
    services;
  const homeserverReadiness = new HomeserverReadiness(options);
  const observe = createObserveServer({
    registry: metrics.registry,
    readiness: async () => [
      await databaseReadiness(database.pool, clock),
      ...homeserverReadiness.checks,
      {
        name: "taking_transactions",
        ok: intake.server.listening && !stop.aborted,
        ...(stop.aborted
          ? { hint: "The process is ending." }
          : !intake.server.listening && {
              hint: "It waits for its address, or for the homeserver to say how far the database had come; the log says which.",
            }),
      },
      ...((await encryption?.readiness()) ?? []),
    ],
    beforeScrape: services.recordGauges,
    agentsDigest: () => agents.digest(),
  });

  await listen(observe, config.observe, "observe");
  let selfChecked: Promise<void> | undefined;
  try {
    const settle = () => {
      selfChecked ??= homeserverReadiness
        .settle(() => checkHomeserver(options, context, services), stop)
        // It rejects only when `stop` interrupts the wait between two checks.
        .catch(() => undefined);
    };
    // While the homeserver does not answer, the self-check says why.
    await restoreGuard.check(stop, settle);
    if (await listenOnceFree(intake, config.listen, "listen", { clock, ended: stop })) {
      await ownership.start(stop);
      encryption?.start();
      for (const part of [audit.loop, ...workers]) part.start();
      log.info({ event: "started", listen: config.listen, observe: config.observe }, "the bridge is up");
      settle();
    }
    if (!stop.aborted) await Promise.race([once(stop, "abort"), restoreGuard.wentBack]);
    log.info({ event: "draining" }, "no more transactions are taken");
  } finally {
    await Promise.all([
      closeServer(intake.server, clock),
      selfChecked,
      ownership.giveUpGhosts(),
      encryption?.drainWorker(),
      ...workers.map((part) => part.drain()),
    ]);
    // Nothing is sent from here on. Requests of devices to a homeserver that hangs are not awaited.
    await Promise.all([homeserver.close(), encryption?.close()]);
    await audit.loop.drain();
    await audit.round().catch(() => undefined);
    await audit.close();
    await ownership.end();
    await Promise.all([closeDelegations(), closeServer(observe.server, clock)]);
  }
}

/** The whole self-check, as a ghost whose device is not stopped: a stopped device says nothing about the others. */
async function checkHomeserver(
  { config }: BridgeOptions,
  { agents }: BridgeContext,
  { homeserver, ghosts, ledger }: BridgeServices,
) {
  const recorded = await ledger.ghosts.recordedDevices();
  const stopped = new Set(recorded.filter((one) => one.stopped !== undefined).map((one) => one.ghost));
  const ghost = [...(await agents.current()).byGhost.keys()].find((one) => !stopped.has(one));
  const checks = await selfCheck({ config, homeserver, ghosts, ghost, listening: true });
  return checks.map(({ check, ok, hint }) => ({ name: check, ok, ...(hint !== undefined && { hint }) }));
}

interface Address {
  readonly host: string;
  readonly port: number;
}

interface Listener {
  listen(address: { host: string; port: number }): Promise<unknown>;
}

interface Patience {
  readonly clock: Clock;
  /** Aborts when there is nothing to wait for any more. */
  readonly ended: AbortSignal;
}

/** A port may stay taken for so long: by a bridge that ends, or by one that tries it as well. */
const TAKEN_MS = 10_000;
const POLL_MS = 250;

/**
 * @param setting the configuration's name for the address
 * @throws DrawbridgeError `program_failed`
 */
async function listen(server: Listener, address: Address, setting: string): Promise<void> {
  try {
    await server.listen({ ...address });
  } catch (cause) {
    throw new DrawbridgeError("program_failed", `cannot listen on ${address.host}:${address.port}`, {
      hint: `Free that port, or change \`${setting}\` in the configuration.`,
      cause,
    });
  }
}

const isTaken = (error: unknown) =>
  error instanceof DrawbridgeError && (error.cause as { code?: unknown } | undefined)?.code === "EADDRINUSE";

/**
 * Listens as soon as the port is free; false when `ended` aborted before.
 * @throws DrawbridgeError `program_failed` when it is still taken after ten seconds, or cannot be had at all
 */
async function listenOnceFree(
  server: Listener,
  address: Address,
  setting: string,
  { clock, ended }: Patience,
): Promise<boolean> {
  const deadline = clock.now() + TAKEN_MS;
  while (!ended.aborted) {
    try {
      await listen(server, address, setting);
      return true;
    } catch (error) {
      if (!isTaken(error)) throw error;
      if (clock.now() >= deadline) throw error;
    }
    await clock.sleep(POLL_MS, ended).catch(() => undefined);
  }
  return false;
}
