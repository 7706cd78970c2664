// oidc-provider, reduced to one grant: client credentials (RFC 6749, section 4.4) for one resource
// (RFC 8707), answered with an ES256 JWT (RFC 9068) that carries the client as `azp`.
// Invariants: nothing else is enabled; a token names the one audience; no token is stored, because a JWT
// is not looked up again.
import Provider, { type Adapter, type ClientMetadata, errors } from "oidc-provider";
import { DrawbridgeError } from "../domain/errors.ts";
import type { IssuerConfig } from "./config.ts";
import type { DeclaredClients } from "./declared-clients.ts";
import type { SigningKeySet } from "./signing-keys.ts";

const OFF = { enabled: false } as const;

function metadataOf(clientId: string, secret: string): ClientMetadata {
  return {
    client_id: clientId,
    client_secret: secret,
    grant_types: ["client_credentials"],
    response_types: [],
    redirect_uris: [],
    token_endpoint_auth_method: "client_secret_basic",
    // There is no RS256 key, which is what the library would check for.
    id_token_signed_response_alg: "ES256",
  };
}

/** Answers for clients alone. Nothing that is enabled stores anything, and what would is refused. */
function adapterFor(clients: DeclaredClients): (model: string) => Adapter {
  const storesNothing = async (): Promise<never> => {
    throw new DrawbridgeError("internal", "the issuer stores nothing");
  };
  const findsNothing = async () => undefined;
  return (model) => ({
    find: async (id) => {
      const client = model === "Client" ? clients.find(id) : undefined;
      return client && metadataOf(client.clientId, client.secret);
    },
    findByUid: findsNothing,
    findByUserCode: findsNothing,
    upsert: storesNothing,
    consume: storesNothing,
    destroy: storesNothing,
    revokeByGrantId: storesNothing,
  });
}

/** The provider for one configuration. */
export function createProvider(
  config: IssuerConfig,
  keys: SigningKeySet,
  clients: DeclaredClients,
): Provider {
  const lifespanSeconds = config.accessTokenLifespan / 1_000;
  const provider = new Provider(config.url, {
    adapter: adapterFor(clients),
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
    clientDefaults: { id_token_signed_response_alg: "ES256" },
    // No cookie is ever set; the library wants a key all the same and warns without one.
    cookies: { keys: ["unused"] },
    routes: { token: TOKEN_PATH, jwks: JWKS_PATH },
  });
  provider.proxy = config.url.startsWith("https:");
  return provider;
}

export const TOKEN_PATH = "/token";
export const JWKS_PATH = "/jwks";
