// The issuer's HTTP server: the token endpoint, the key set, discovery, and nothing else. Invariants: an allow-list stands
// in front of the library; discovery names the configured address, whatever host a caller names; the log names a client
// only when it is declared, and never what a caller sent or a secret.
import { createServer } from "node:http";
import { dirname, resolve } from "node:path";
import { calculateJwkThumbprint, exportJWK, generateKeyPair } from "jose";
import Provider, { errors } from "oidc-provider";
import type { Logger } from "pino";
import * as z from "zod";
import type { Clock } from "../domain/clock.ts";
import { DrawbridgeError } from "../domain/errors.ts";
import { parseJson } from "../domain/json.ts";
import { ClientsFile } from "../rendered-files/issuer-clients.ts";
import { closeServer, listening } from "../runtime/http.ts";
import { parseYaml } from "../runtime/load-yaml.ts";
import { ReloadedFile } from "../runtime/reloaded-file.ts";
import { readRegistrySecret, readSecret } from "../runtime/secrets.ts";
import { WorkLoop } from "../runtime/work-loop.ts";
import type { IssuerConfig } from "./config.ts";

// The signing keys. The first key signs and all are published, so that a new one can be known before it signs.

const Coordinate = z.string().regex(/^[A-Za-z0-9_-]{43}$/);

const PrivateEs256Jwk = z.strictObject({
  kty: z.literal("EC"),
  crv: z.literal("P-256"),
  x: Coordinate,
  y: Coordinate,
  d: Coordinate,
  kid: z.string().min(1).max(128),
  alg: z.literal("ES256"),
  use: z.literal("sig"),
});

const SigningKeySet = z.strictObject({ keys: z.array(PrivateEs256Jwk).min(1) });
export type SigningKeySet = z.output<typeof SigningKeySet>;

/** A set of one new key, whose ID is its RFC 7638 thumbprint. */
export async function generateSigningKeys(): Promise<SigningKeySet> {
  const { privateKey } = await generateKeyPair("ES256", { extractable: true });
  const jwk = await exportJWK(privateKey);
  const kid = await calculateJwkThumbprint(jwk);
  return SigningKeySet.parse({ keys: [{ ...jwk, kid, alg: "ES256", use: "sig" }] });
}

/** Reads a key set. @throws DrawbridgeError `secret_unavailable`, which says nothing of the text */
export function parseSigningKeys(text: string): SigningKeySet {
  const result = SigningKeySet.safeParse(parseJson(text));
  if (result.success) return result.data;
  throw new DrawbridgeError("secret_unavailable", "the signing keys are not a set of private ES256 keys", {
    hint: "Make a set with: drawbridge issuer keygen -o FILE",
  });
}

const TOKEN_PATH = "/token";
const JWKS_PATH = "/jwks";

/** How often the clients' file is read when no token is requested. */
const READ_INTERVAL_MS = 250;

const ALLOWED: ReadonlyMap<string, readonly string[]> = new Map([
  [TOKEN_PATH, ["POST"]],
  [JWKS_PATH, ["GET", "HEAD"]],
  ["/.well-known/openid-configuration", ["GET", "HEAD"]],
  ["/.well-known/oauth-authorization-server", ["GET", "HEAD"]],
]);

/** @throws ConfigError, DrawbridgeError when its keys or clients cannot be read */
export async function startIssuer(config: IssuerConfig, log: Logger, clock: Clock) {
  const keys = parseSigningKeys(readSecret(config.signingKeys, config.directory));
  const clients = declaredClients(resolve(config.directory, config.clientsFile), log);
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
  const { host, protocol } = new URL(config.url);
  const asConfigured = { host, "x-forwarded-host": host, "x-forwarded-proto": protocol.slice(0, -1) };
  const server = createServer((request, response) => {
    const [path = ""] = (request.url ?? "").split("?", 1);
    if (ALLOWED.get(path)?.includes(request.method ?? "")) {
      Object.assign(request.headers, asConfigured);
      return void handle(request, response);
    }
    request.resume();
    response.writeHead(404).end();
  });
  await listening(server, config.listen);
  const following = new WorkLoop({
    clock,
    round: async () => clients.refresh(),
    onError: (error) => log.error({ event: "clients_check_failed", err: error }),
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

/**
 * The clients that may have a token. Their file is read at each request and at an interval: otherwise a version that
 * stood between two requests would not be the one that a broken file leaves in force.
 * @throws ConfigError, DrawbridgeError `config_unreadable` when there is no good file to start with
 */
function declaredClients(file: string, log: Logger) {
  const report = (event: string, { code, message, hint }: DrawbridgeError, fields: object = {}) =>
    log.error({ event, ...fields, code, reason: message, hint });
  const followed = new ReloadedFile({
    file,
    parse: (text) => parseYaml(ClientsFile, text, file),
    onLoaded: ({ clients }) =>
      log.info({ event: "clients_reloaded", clients: clients.length }, "the clients were read again"),
    onRefused: (error) => report("clients_refused", error),
  });
  return {
    refresh: () => followed.check(),
    /** The metadata of a client; undefined when it is unknown, disabled or has no readable secret. */
    find: (clientId: string) => {
      followed.check();
      const client = followed.inForce.value.clients.find((candidate) => candidate.clientId === clientId);
      if (client?.secret === undefined || !client.enabled) return undefined;
      try {
        const secret = readRegistrySecret(client.secret, dirname(file));
        return { client_id: clientId, client_secret: secret };
      } catch (error) {
        if (!(error instanceof DrawbridgeError)) throw error;
        report("secret_refused", error, { clientId });
        return undefined;
      }
    },
  };
}

// oidc-provider, reduced to one grant: client credentials (RFC 6749, section 4.4) for one resource (RFC 8707),
// answered with an ES256 JWT (RFC 9068) that carries the client as `azp`. Invariants: nothing else is enabled; a
// token names the one audience; no token is stored, because a JWT is not looked up again.

const OFF = { enabled: false } as const;

function createProvider(
  config: IssuerConfig,
  keys: SigningKeySet,
  clients: ReturnType<typeof declaredClients>,
): Provider {
  const lifespanSeconds = config.accessTokenLifespan / 1_000;
  const provider = new Provider(config.url, {
    // The adapter finds clients alone: no enabled feature stores anything, and a call of a missing method fails.
    adapter: (model) => ({ find: async (id) => (model === "Client" ? clients.find(id) : undefined) }),
    jwks: keys,
    features: {
      clientCredentials: { enabled: true },
      resourceIndicators: {
        enabled: true,
        // Without one, a request that names no resource would be answered with an opaque token.
        defaultResource: async () => config.audience,
        getResourceServerInfo: async (_ctx: unknown, resource: string) => {
          if (resource !== config.audience)
            throw new errors.InvalidTarget("resource not served by this issuer");
          return {
            scope: "",
            audience: config.audience,
            accessTokenFormat: "jwt",
            accessTokenTTL: lifespanSeconds,
            jwt: { sign: { alg: "ES256" } },
          };
        },
        useGrantedResource: async () => false,
      },
      devInteractions: OFF,
      dPoP: OFF,
      introspection: OFF,
      pushedAuthorizationRequests: OFF,
      revocation: OFF,
      rpInitiatedLogout: OFF,
      userinfo: OFF,
    },
    // A function: a number would silently override the resource's own lifespan.
    ttl: { ClientCredentials: () => lifespanSeconds },
    extraTokenClaims: async (_ctx, token) => ({ azp: token.clientId }),
    clientAuthMethods: ["client_secret_basic", "client_secret_post"],
    responseTypes: ["none"],
    scopes: [],
    clientDefaults: {
      grant_types: ["client_credentials"],
      response_types: [],
      redirect_uris: [],
      token_endpoint_auth_method: "client_secret_basic",
      // There is no RS256 key, which is what the library would check for.
      id_token_signed_response_alg: "ES256",
    },
    // No cookie is ever set; the library wants a key all the same and warns without one.
    cookies: { keys: ["unused"] },
    routes: { token: TOKEN_PATH, jwks: JWKS_PATH },
  });
  provider.proxy = true;
  // A request that breaks off is no failure of the issuer, and its stack nothing to print.
  provider.silent = true;
  return provider;
}
