// Running a gateway: Envoy as a child, its files following the gateway's own three. Invariants: a file that cannot be used
// leaves the last good one serving, and log and state file say so; what the state file calls in force Envoy has reported.
import type { ChildProcess } from "node:child_process";
import { rmSync } from "node:fs";
import { join } from "node:path";
import type { Logger } from "pino";
import type { Clock } from "../domain/clock.ts";
import { errorName } from "../domain/errors.ts";
import { jsonText } from "../domain/json.ts";
import type { GatewayState } from "../rendered-files/gateway-files.ts";
import { namedLock } from "../runtime/named-lock.ts";
import { PUBLIC, writeWhole } from "../runtime/write-file.ts";
import { applyChanges, type InForce, placeQuotas, prepare } from "./apply-changes.ts";
import { createEnvoyAdmin, NO_STATS, placeAll } from "./envoy-files.ts";
import { endLeftover, endOf, requireSetpriv, startEnvoy } from "./envoy-process.ts";
import { BOOTSTRAP_FILE } from "./render/render.ts";
import { followFiles, loadSources, type RefusedFile, type Sources } from "./source-files.ts";

/** Above twice the time that an earlier Envoy has to end. */
const START_MS_MAX = 15_000;

/** Runs until `stop` aborts or Envoy ends; returns the exit code, 0 after `stop`. @throws ConfigError, DrawbridgeError */
export async function serve(options: {
  readonly configFile: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly stop: AbortSignal;
}): Promise<number> {
  const { clock, log } = options;
  const sources = loadSources(options.configFile);
  const config = sources.gateway.value;
  await requireSetpriv();
  const { directory } = config.envoy;
  const bootstrap = join(directory, BOOTSTRAP_FILE);
  const state = createStateFile(config.stateFile, clock);
  // Of two that start at once, the later one sees the other's Envoy, and ends it.
  const holder = "another gateway that starts in this folder";
  const lock = await namedLock(bootstrap, { clock, timeoutMs: START_MS_MAX, holder });
  let inForce: InForce;
  let child: ChildProcess;
  try {
    inForce = await prepare(sources);
    await endLeftover(bootstrap, clock);
    state.clear();
    placeAll(directory, inForce.rendered);
    placeQuotas(inForce);
    child = startEnvoy(bootstrap, config.envoy);
  } finally {
    void lock.release();
  }
  const ended = new AbortController();
  const end = endOf(child).finally(() => ended.abort());
  // The end is awaited later, and may fail before.
  end.catch(() => undefined);
  const stop = () => child.kill("SIGTERM");
  options.stop.addEventListener("abort", stop, { once: true });
  if (options.stop.aborted) stop();

  const report = (refused: readonly RefusedFile[]): boolean => {
    try {
      state.write(inForce.sources, refused);
      return true;
    } catch (error) {
      // The one before would say that an older file is in force.
      state.clear();
      log.error({ event: "state_not_written", code: errorName(error) }, "what is in force is not reported");
      return false;
    }
  };
  const admin = createEnvoyAdmin(config.adminPort, clock);
  const over = AbortSignal.any([options.stop, ended.signal]);
  try {
    await admin.waitForVersions(inForce.rendered.versions, NO_STATS, over);
    state.write(sources, []);
    logInForce(log, "ready", inForce);
    let logged: readonly RefusedFile[] = [];
    await followFiles(
      sources,
      async (readings) => {
        const changed = await applyChanges(inForce, readings, logged, admin, over);
        if (over.aborted) return false;
        const isNew = changed.inForce !== inForce;
        inForce = changed.inForce;
        const isReported = report(changed.refused);
        if (isNew) logInForce(log, "reloaded", inForce);
        const isLogged = ({ file, digest }: RefusedFile) =>
          logged.some((one) => one.file === file && one.digest === digest);
        for (const { file, reason, error } of changed.refused.filter((one) => !isLogged(one))) {
          const { message, hint } = error;
          const refusal = { event: "config_refused", file, code: reason, reason: message, hint };
          log.error(refusal, "the new file is not used; the last good one stays in force");
        }
        logged = changed.refused;
        return !isReported || logged.some(({ reason }) => reason === "refused_by_envoy");
      },
      clock,
      over,
    );
  } catch (error) {
    const isOver = over.aborted;
    stop();
    await end;
    state.clear();
    if (!isOver) throw error;
  }
  const code = await end;
  state.clear();
  if (options.stop.aborted) return 0;
  log.error({ event: "envoy_ended", exitCode: code }, "Envoy ended by itself");
  return code === 0 ? 1 : code;
}

function logInForce(log: Logger, event: "ready" | "reloaded", { sources, intent, rendered }: InForce): void {
  const { host, port } = sources.gateway.value.listen;
  const named = (wanted: "card" | "invocation") =>
    intent.agents.filter((agent) => agent[wanted] !== undefined).map(({ name }) => name);
  const served = { cards: named("card"), agents: named("invocation"), versions: rendered.versions };
  const message = event === "ready" ? "the gateway is serving" : "the new configuration is in force";
  log.info({ event, listen: `${host}:${port}`, ...served }, message);
}

/** state.json: what is in force, and the first file that is refused; gone while no gateway runs. */
function createStateFile(file: string, clock: Clock) {
  let inForce = { digests: "", since: "" };
  let lastRefused = { key: "", at: "" };
  return {
    clear: () => rmSync(file, { force: true }),
    write({ publication, invocation, gateway }: Sources, [refused]: readonly RefusedFile[]): void {
      const now = new Date(clock.now()).toISOString();
      const digests = [publication.digest, invocation.digest, gateway.digest].join();
      if (digests !== inForce.digests) inForce = { digests, since: now };
      const report = refused && { file: refused.file, digest: refused.digest, reason: refused.reason };
      const key = report === undefined ? "" : Object.values(report).join(" ");
      if (key !== lastRefused.key) lastRefused = { key, at: now };
      const state: GatewayState = {
        version: 1,
        publication: publication.digest,
        invocation: invocation.digest,
        since: inForce.since,
        refused: report === undefined ? null : { ...report, at: lastRefused.at },
      };
      writeWhole(file, jsonText(state), PUBLIC);
    },
  };
}
