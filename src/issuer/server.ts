// The issuer's HTTP server: the token endpoint, the key set, discovery, and nothing else.
// Invariants: an allow-list stands in front of the library; the log names a client only when it is
// declared, and never what a caller sent.
import { createServer, type IncomingMessage, type Server } from "node:http";
import { resolve } from "node:path";
import type { Logger } from "pino";
import type { Clock } from "../domain/clock.ts";
import { closeServer } from "../runtime/http.ts";
import { readSecret } from "../runtime/secrets.ts";
import { WorkLoop } from "../runtime/work-loop.ts";
import type { IssuerConfig } from "./config.ts";
import { DeclaredClients } from "./declared-clients.ts";
import { createProvider, JWKS_PATH, TOKEN_PATH } from "./provider.ts";
import { parseSigningKeys } from "./signing-keys.ts";

/** How often the clients' file is read when no token is requested. */
const READ_INTERVAL_MS = 250;

const ALLOWED: ReadonlyMap<string, readonly string[]> = new Map([
  [TOKEN_PATH, ["POST"]],
  [JWKS_PATH, ["GET", "HEAD"]],
  ["/.well-known/openid-configuration", ["GET", "HEAD"]],
  ["/.well-known/oauth-authorization-server", ["GET", "HEAD"]],
]);

function isAllowed(request: IncomingMessage): boolean {
  const path = (request.url ?? "").split("?", 1)[0] ?? "";
  return ALLOWED.get(path)?.includes(request.method ?? "") ?? false;
}

export interface RunningIssuer {
  /** Where it listens, such as `127.0.0.1:9000`. */
  readonly address: string;
  close(): Promise<void>;
}

/**
 * Starts the issuer.
 * @throws ConfigError, DrawbridgeError when its keys or clients cannot be read
 */
export async function startIssuer(config: IssuerConfig, log: Logger, clock: Clock): Promise<RunningIssuer> {
  const keys = parseSigningKeys(readSecret(config.signingKeys, config.directory));
  const clients = new DeclaredClients(resolve(config.directory, config.clientsFile), log);
  const provider = createProvider(config, keys, clients);
  provider.on("grant.success", (ctx) => {
    log.info({ event: "token_issued", clientId: ctx.oidc?.client?.clientId });
  });
  provider.on("grant.error", (ctx, error) => {
    log.warn({ event: "token_refused", clientId: ctx.oidc?.client?.clientId, reason: error.message });
  });
  provider.on("server_error", (_ctx, error) => {
    log.error({ event: "issuer_failed", reason: error.name });
  });

  const handle = provider.callback();
  const server = createServer((request, response) => {
    if (isAllowed(request)) {
      void handle(request, response);
      return;
    }
    request.resume();
    response.writeHead(404).end();
  });
  await listen(server, config.listen);
  const following = new WorkLoop({
    clock,
    round: async () => {
      clients.refresh();
      return false;
    },
    onError: (error) => log.error({ event: "clients_look_failed", err: error }),
    pollIntervalMs: READ_INTERVAL_MS,
  });
  following.start();
  return {
    address: `${config.listen.host}:${config.listen.port}`,
    close: async () => {
      await following.drain();
      await closeServer(server, clock);
    },
  };
}

function listen(server: Server, at: IssuerConfig["listen"]): Promise<void> {
  return new Promise((resolveListening, reject) => {
    server.once("error", reject);
    server.listen(at.port, at.host, () => {
      server.off("error", reject);
      resolveListening();
    });
  });
}
