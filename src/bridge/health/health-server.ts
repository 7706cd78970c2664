// /livez, /readyz and /metrics, on a port of their own.
// Alive: the process answers. Ready: it can do its work now - the database answers, it is this bridge that serves,
// and the homeserver's side was seen to work; each thing that is not so is named, and what concerns one ghost alone
// only named. Beside that /readyz says by its digest which agents.yaml is in force, so that whoever wrote the file
// can tell when it counts.
import Fastify, { type FastifyInstance } from "fastify";
import type { Registry } from "prom-client";

export interface Readiness {
  readonly name: string;
  readonly ok: boolean;
  /** False: whether it is so could not be found out yet. It is not `ok` then, and nothing is known to be wrong. */
  readonly known?: boolean;
  /** What was found, where that says more than yes or no. */
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
  /** Sets what is only looked at when somebody asks. */
  readonly beforeScrape?: () => void;
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
    options.beforeScrape?.();
    return reply.type(options.registry.contentType).send(await options.registry.metrics());
  });
  return server;
}
