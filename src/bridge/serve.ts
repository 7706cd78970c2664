// One leadership of the bridge: it waits to become leader, serves, and drains when another bridge is to lead.
// Invariants: a bridge that does not lead takes no transactions and does no work; it requests leadership from another
// bridge only after the homeserver has accepted its token; a drain first stops taking transactions, then lets work end
// or releases it, and closes the devices after everything that may send.
import { once } from "node:events";
import { closeServer } from "../runtime/http.ts";
import type { BridgeContext, BridgeOptions } from "./context.ts";
import { createObserveServer } from "./health/observe-server.ts";
import { databaseReadiness, HomeserverReadiness, leadershipReadiness } from "./health/readiness.ts";
import { checkHomeserver, type SelfCheck, selfCheck } from "./health/self-check.ts";
import type { Candidacy, Leadership } from "./leadership.ts";
import { listen, listenOnceFree } from "./listen.ts";
import { setLeading } from "./metrics.ts";
import { type BridgeServices, createServices } from "./services.ts";

const asReadiness = ({ check, ok, hint }: SelfCheck) => ({
  name: check,
  ok,
  ...(hint !== undefined && { hint }),
});

/** Resolves when the bridge has drained: after another bridge was to lead, or after `options.stop`. */
export async function serve(
  options: BridgeOptions,
  context: BridgeContext,
  leadership: Leadership,
  candidacy: Candidacy,
): Promise<void> {
  const { config, clock, log, stop } = options;
  const { agents, database, metrics } = context;
  const services = createServices(options, context);
  const { homeserver, encryption, intake, audit, agentHttp, workers } = services;
  const leaderReadiness = new HomeserverReadiness(options);
  /** What can be checked without leadership. */
  const standbyReadiness = new HomeserverReadiness(options);
  const observe = createObserveServer({
    registry: metrics.registry,
    readiness: async () => [
      await databaseReadiness(database.pool),
      leadershipReadiness(leadership),
      ...(leadership.isLeader ? leaderReadiness : standbyReadiness).checks,
      ...((await encryption?.readiness()) ?? []),
    ],
    beforeScrape: () => encryption?.record(),
    agentsDigest: () => agents.digest(),
  });

  const ended = AbortSignal.any([stop, leadership.handOver]);
  await listen(observe, config.observe, "observe");
  setLeading(metrics, false);
  const decided = new AbortController();
  let standbyCheck: Promise<void> | undefined;
  const canLead = () => {
    standbyCheck ??= standbyReadiness
      .settle(
        async () => (await checkHomeserver({ config, homeserver, listening: false })).map(asReadiness),
        AbortSignal.any([ended, decided.signal]),
      )
      .catch(() => undefined);
    return standbyReadiness.isWell;
  };
  const isLeader =
    (await leadership.acquire(candidacy, ended, canLead).finally(() => decided.abort())) &&
    (await listenOnceFree(intake, config.listen, "listen", { clock, ended }));
  if (isLeader) {
    setLeading(metrics, true);
    encryption?.start();
    for (const part of [audit, ...workers]) part.start();
    log.info({ event: "started", listen: config.listen, observe: config.observe }, "the bridge is up");
  }
  const leaderCheck =
    isLeader &&
    leaderReadiness
      .settle(() => checkAsLeader(options, context, services), ended)
      // It rejects only when `ended` interrupts the wait between two checks.
      .catch(() => undefined);

  if (!ended.aborted) await once(ended, "abort");
  log.info({ event: "draining" }, "no more transactions are taken");
  await Promise.all([
    closeServer(intake.server, clock),
    leaderCheck,
    encryption?.drainWorker(),
    ...workers.map((part) => part.drain()),
  ]);
  // Nothing is sent from here on. Requests of devices to a homeserver that hangs are not awaited.
  await Promise.all([homeserver.close(), encryption?.close()]);
  await standbyCheck;
  await audit.drain();
  // Only the leader writes the audit file.
  if (isLeader) await audit.round().catch(() => false);
  await audit.close();
  await Promise.all([agentHttp.close(), closeServer(observe.server, clock)]);
}

/** The whole self-check, as a ghost whose device is not stopped: a stopped device says nothing about the others. */
async function checkAsLeader(
  { config }: BridgeOptions,
  { agents }: BridgeContext,
  { homeserver, ghosts, ledger }: BridgeServices,
) {
  const recorded = await ledger.ghosts.recordedDevices();
  const stopped = new Set(recorded.filter((one) => one.stopped !== undefined).map((one) => one.ghost));
  const ghost = [...(await agents.current()).byGhost.keys()].find((one) => !stopped.has(one));
  return (await selfCheck({ config, homeserver, ghosts, ghost, listening: true })).map(asReadiness);
}
