// /livez, /readyz and /metrics, on a port of their own.
// Alive: the process answers. Ready: the database answers, and the self-check with the homeserver has passed. Checks that concern one ghost alone are shown without blocking. /readyz also shows the digest of the
// agents.yaml in force, so that its author can tell when a change has taken effect.
import Fastify, { type FastifyInstance } from "fastify";
import type { Registry } from "prom-client";

export interface Readiness {
  readonly name: string;
  readonly ok: boolean;
  /** False: not found out yet. It is not `ok` then, though nothing is known to be wrong. */
  readonly known?: boolean;
  /** What was found, where that is more than yes or no. */
  readonly found?: string;
  /** What to do about it, when it is not. */
  readonly hint?: string;
  /** False: it is shown, and the bridge is ready all the same. */
  readonly blocking?: boolean;
}

export function createObserveServer(options: {
  readonly registry: Registry;
  readonly readiness: () => Promise<readonly Readiness[]>;
  /** SHA-256, tagged, of the agents.yaml in force. */
  readonly agentsDigest: () => string;
  /** Sets the gauges that are computed at a scrape. */
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
    });
  });
  server.get("/metrics", async (_request, reply) => {
    await options.beforeScrape?.();
    return reply.type(options.registry.contentType).send(await options.registry.metrics());
  });
  return server;
}
