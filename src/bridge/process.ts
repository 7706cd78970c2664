// A bridge as a process: it reads its files, migrates the database, works, and drains when it is stopped.
// Invariants: nothing listens before the database is migrated; no work begins, and no transaction is taken, on a database
// that was put back; a drain first stops taking transactions and gives its ghosts to others, then lets work end.
import { once } from "node:events";
import type { FastifyInstance } from "fastify";
import { DrawbridgeError } from "../domain/errors.ts";
import { closeServer } from "../runtime/http.ts";
import { type BridgeContext, type BridgeOptions, openContext } from "./context.ts";
import { migrateWhenReachable } from "./database.ts";
import { createObserveServer, databaseReadiness, UNCHECKED, untilWell } from "./health/health-server.ts";
import { selfCheck } from "./health/homeserver-checks.ts";
import { createServices } from "./services.ts";

/** Runs the bridge until `stop` aborts, and drains it. @throws DrawbridgeError when it cannot start */
export async function runBridge(options: BridgeOptions): Promise<void> {
  const context = openContext(options);
  const { clock, database, log, stop } = context;
  try {
    await migrateWhenReachable(database.pool, clock, log, stop).catch((error: unknown) => {
      if (!stop.aborted) throw error;
    });
    if (!stop.aborted) await serve(context);
  } finally {
    await database.close();
  }
  log.info({ event: "stopped" }, "the bridge has ended");
}

async function serve(context: BridgeContext): Promise<void> {
  const { config, clock, log, stop, agents, database, metrics } = context;
  const services = createServices(context);
  const { ownership, homeserver, encryption, intake, audit, closeDelegations, workers, restoreGuard } =
    services;
  let homeserverChecks = UNCHECKED;
  const observe = createObserveServer({
    registry: metrics.registry,
    readiness: async () => [
      await databaseReadiness(database.pool, clock),
      ...homeserverChecks,
      {
        name: "taking_transactions",
        ok: intake.server.listening && !stop.aborted,
        hint: stop.aborted ? "The process is ending." : intake.server.listening ? undefined : WAITS,
      },
      ...((await encryption?.readiness()) ?? []),
    ],
    beforeScrape: services.recordGauges,
    agentsDigest: () => agents.digest(),
    encryption: config.encryption.mode,
  });

  await listen(observe, "observe", context);
  const check = async () => {
    homeserverChecks = await checkHomeserver(context, services);
    return homeserverChecks;
  };
  let selfChecked: Promise<void> | undefined;
  try {
    const selfCheckOnce = () => {
      selfChecked ??= untilWell(check, context);
    };
    // While the homeserver does not answer, the self-check says why.
    await restoreGuard.check(stop, selfCheckOnce);
    if (!stop.aborted) await listen(intake, "listen", context);
    if (!stop.aborted) {
      await ownership.start(stop);
      encryption?.start();
      for (const part of [audit.loop, ...workers]) part.start();
      log.info({ event: "started", listen: config.listen, observe: config.observe }, "the bridge is up");
      selfCheckOnce();
    }
    if (!stop.aborted) await Promise.race([once(stop, "abort"), restoreGuard.wentBack]);
    log.info({ event: "draining" }, "no more transactions are taken");
  } finally {
    await Promise.all([
      closeServer(intake.server, clock),
      selfChecked,
      ownership.giveUpGhosts(),
      encryption?.queue?.drain(),
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

/** The self-check, as a ghost whose device is not stopped: a stopped one says nothing about the others. */
async function checkHomeserver(
  { config, agents }: BridgeContext,
  { homeserver, ghosts, ledger }: ReturnType<typeof createServices>,
) {
  const recorded = await ledger.ghosts.recordedDevices();
  const stopped = new Set(recorded.filter((one) => one.stopped !== undefined).map((one) => one.ghost));
  const ghost = [...(await agents.current()).byGhost.keys()].find((one) => !stopped.has(one));
  return await selfCheck({ config, homeserver, ghosts, ghost, listening: true });
}

const WAITS = "It waits for the homeserver to say how far the database had come.";
/** A process that ends, whose place this one takes, holds its port a little longer. */
const TAKEN_MS = 10_000;
const POLL_MS = 250;

/** Listens, or gives up at `stop`. @throws DrawbridgeError `program_failed` when the port is still taken after 10 s, or cannot be had */
export async function listen(
  server: FastifyInstance,
  setting: "listen" | "observe",
  { config, clock, stop }: BridgeOptions,
): Promise<void> {
  const { host, port } = config[setting];
  const deadline = clock.now() + TAKEN_MS;
  const attempt = async (): Promise<unknown> =>
    server.listen({ host, port }).catch(async (cause: NodeJS.ErrnoException) => {
      if (cause.code !== "EADDRINUSE" || clock.now() >= deadline || stop.aborted) throw cause;
      await clock.sleep(POLL_MS, stop).catch(() => undefined);
      return attempt();
    });
  await attempt().catch((cause: unknown) => {
    if (stop.aborted) return;
    throw new DrawbridgeError("program_failed", `cannot listen on ${host}:${port}`, {
      hint: `Free that port, or change \`${setting}\` in the configuration.`,
      cause,
    });
  });
}
