// One turn of the bridge at serving: the wait for its place, its start, its end.
// Invariants: nothing is taken and nothing done without the place; no bridge beside this one is asked for it before
// the homeserver was seen to accept this one; a drain stops taking transactions first, then
// lets what is under way end or gives it back, and closes the devices after all that may send.
import { once } from "node:events";
import { closeServer } from "../runtime/close-server.ts";
import type { BridgeContext, BridgeOptions } from "./context.ts";
import { createObserveServer } from "./health/health-server.ts";
import { databaseReadiness, HomeserverReadiness, leadershipReadiness } from "./health/readiness.ts";
import { checkHomeserver, type SelfCheck, selfCheck } from "./health/self-check.ts";
import type { Leadership } from "./leadership.ts";
import { listen, listenOnceFree } from "./listen.ts";
import { tellServing } from "./metrics.ts";
import { createServices } from "./services.ts";

const shown = ({ check, ok, hint }: SelfCheck) => ({ name: check, ok, ...(hint !== undefined && { hint }) });

/** Waits for the place, serves until another is to, or the bridge ends, and drains. */
export async function serve(
  options: BridgeOptions,
  context: BridgeContext,
  leadership: Leadership,
  asks: boolean,
): Promise<void> {
  const { config, clock, log, stop } = options;
  const { agents, database, metrics } = context;
  const { homeserver, ghosts, ledger, encryption, intake, audit, agentHttp, workers } = createServices(
    options,
    context,
  );
  const homeserverSide = new HomeserverReadiness(options);
  /** What can be known of it without the place. */
  const beforehand = new HomeserverReadiness(options);
  const observe = createObserveServer({
    registry: metrics.registry,
    readiness: async () => [
      await databaseReadiness(database.pool),
      leadershipReadiness(leadership),
      ...(leadership.isServing ? homeserverSide : beforehand).checks,
      ...((await encryption?.readiness()) ?? []),
    ],
    beforeScrape: () => encryption?.record(),
    agentsDigest: () => agents.digest(),
  });

  const ended = AbortSignal.any([stop, leadership.handOver]);
  await listen(observe, config.observe, "observe");
  tellServing(metrics, false);
  const decided = new AbortController();
  let looked: Promise<void> | undefined;
  const isAccepted = () => {
    looked ??= beforehand
      .settle(
        async () => (await checkHomeserver({ config, homeserver, listening: false })).map(shown),
        AbortSignal.any([ended, decided.signal]),
      )
      .catch(() => undefined);
    return beforehand.isWell;
  };
  const mayServe =
    (await leadership.begin(asks, ended, isAccepted).finally(() => decided.abort())) &&
    (await listenOnceFree(intake, config.listen, "listen", { clock, ended }));
  if (mayServe) {
    tellServing(metrics, true);
    encryption?.start();
    for (const part of [audit, ...workers]) part.start();
    log.info({ event: "started", listen: config.listen, observe: config.observe }, "the bridge is up");
  }
  const settled =
    mayServe &&
    homeserverSide
      .settle(async () => {
        // A device that has stopped says nothing of the others.
        const recorded = await ledger.ghosts.recordedDevices();
        const stopped = new Set(recorded.filter((one) => one.stopped !== undefined).map((one) => one.ghost));
        const ghost = [...(await agents.current()).byGhost.keys()].find((one) => !stopped.has(one));
        return (await selfCheck({ config, homeserver, ghosts, ghost, listening: true })).map(shown);
      }, ended)
      // Only the wait between two checks can be rejected: by the end of the process.
      .catch(() => undefined);

  if (!ended.aborted) await once(ended, "abort");
  log.info({ event: "draining" }, "no more transactions are taken");
  await Promise.all([
    closeServer(intake.server, clock),
    settled,
    encryption?.drainWorker(),
    ...workers.map((part) => part.drain()),
  ]);
  // Nothing is sent any more. What devices still ask of a homeserver that hangs is not waited for.
  await Promise.all([homeserver.close(), encryption?.close()]);
  await looked;
  await audit.drain();
  // The file is the one's that serves.
  if (mayServe) await audit.round().catch(() => false);
  await audit.close();
  await Promise.all([agentHttp.close(), closeServer(observe.server, clock)]);
}
