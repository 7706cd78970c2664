// /livez, /readyz and /metrics, on a port of their own.
// Invariants: the homeserver is checked by real requests, again until they succeed, and nothing is ready before; what
// concerns one ghost does not block.
import Fastify, { type FastifyInstance } from "fastify";
import type { Logger } from "pino";
import type { Registry } from "prom-client";
import * as z from "zod";
import type { Clock } from "../../domain/clock.ts";
import { errorName } from "../../domain/errors.ts";
import { resultWithin } from "../../runtime/concurrency.ts";
import type { BridgeConfig } from "../config.ts";

export const Readiness = z.object({
  name: z.string(),
  ok: z.boolean(),
  /** False: not found out yet. It is not `ok` then, though nothing is known to be wrong. */
  known: z.boolean().default(true),
  found: z.string().optional(),
  hint: z.string().optional(),
  /** False: it is shown, and the bridge is ready all the same. */
  blocking: z.boolean().default(true),
});
export type Readiness = Readonly<z.input<typeof Readiness>>;

export function createObserveServer(options: {
  readonly registry: Registry;
  readonly readiness: () => Promise<readonly Readiness[]>;
  readonly agentsDigest: () => string;
  readonly encryption: BridgeConfig["encryption"]["mode"];
  readonly beforeScrape?: () => Promise<void>;
}): FastifyInstance {
  const server = Fastify({ logger: false });
  server.get("/livez", async () => ({ status: "ok" }));
  server.get("/readyz", async (_request, reply) => {
    const checks = await options.readiness();
    const ready = checks.every((check) => check.ok || check.blocking === false);
    return reply.code(ready ? 200 : 503).send({
      status: ready ? "ok" : "not_ready",
      checks,
      agents: { digest: options.agentsDigest() },
      encryption: options.encryption,
    });
  });
  server.get("/metrics", async (_request, reply) => {
    await options.beforeScrape?.();
    return reply.type(options.registry.contentType).send(await options.registry.metrics());
  });
  return server;
}

const SELF_CHECK_RETRY_MS = 5_000;
const DATABASE_PROBE_MS = 2_000;

export const UNCHECKED: readonly Readiness[] = [
  { name: "homeserver", ok: false, hint: "The self-check has not ended yet." },
];

export async function untilWell(
  check: () => Promise<readonly Readiness[]>,
  { clock, log, stop }: { readonly clock: Clock; readonly log: Logger; readonly stop: AbortSignal },
): Promise<void> {
  while (!stop.aborted) {
    try {
      const failed = (await check()).filter(({ ok }) => !ok);
      for (const { name, hint } of failed) log.warn({ check: name, hint }, "self-check");
      if (failed.length === 0) return log.info("the self-check passed");
    } catch (error) {
      // The database, most likely; readiness says so itself.
      log.warn({ err: errorName(error) }, "the self-check failed");
    }
    await clock.sleep(SELF_CHECK_RETRY_MS, stop).catch(() => undefined);
  }
}

export async function databaseReadiness(pool: { query(text: string): Promise<unknown> }, clock: Clock) {
  const answer = resultWithin(clock, DATABASE_PROBE_MS, pool.query("SELECT 1")).catch(() => undefined);
  return (await answer) === undefined
    ? { name: "database", ok: false, hint: "Start PostgreSQL, or correct `database` in the configuration." }
    : { name: "database", ok: true };
}
