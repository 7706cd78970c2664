// Keycloak's Admin REST API (26), as a service account, and a client's settings in it. Invariants: a refused token is
// requested anew once; it goes to the configured address alone; every exchange has a deadline; neither token, secret nor
// body reaches an error; clients have client credentials alone, and tokens of five minutes, signed ES256, for one
// audience; no other mapper or scope could put another claim into a token.
import { resolve } from "node:path";
import type { Agent } from "undici";
import * as z from "zod";
import { canonicalize } from "../../../domain/canonical-json.ts";
import { sha256Tagged } from "../../../domain/digest.ts";
import { DrawbridgeError } from "../../../domain/errors.ts";
import { type JsonObject, membersOf } from "../../../domain/json.ts";
import { TOKEN_LIFE_S } from "../../../rendered-files/issuer-clients.ts";
import { basicAuthorization, httpAgent, type JsonRequest, requestJson } from "../../../runtime/http.ts";
import { readInput } from "../../../runtime/read-input.ts";
import { readSecret } from "../../../runtime/secrets.ts";
import type { FederationConfig } from "../../config.ts";

type Issuer = NonNullable<FederationConfig["gateway"]>["issuer"];
export type KeycloakTarget = Extract<Issuer, { readonly adapter: "keycloak" }>;

const EXCHANGE_MS = 10_000;
/** A Keycloak that is down must not hold up what the gateway closes. */
const CONNECT_MS = 2_000;

/** @throws DrawbridgeError `issuer_unavailable`, from each request */
export function keycloakAdmin(target: KeycloakTarget, directory: string) {
  const { url, caFile, realm, adminRealm, adminClientId, adminClientSecret } = target;
  let agent: Agent | undefined;
  let known: string | undefined;

  async function exchange(resource: string, options: Omit<JsonRequest, "timeoutMs">) {
    agent ??= httpAgent({
      connections: 4,
      // Short, so that a command that used it can end.
      keepAliveTimeout: 1_000,
      connect: {
        timeout: CONNECT_MS,
        ...(caFile && { ca: readInput(resolve(directory, caFile), "Check gateway.issuer.caFile.") }),
      },
    });
    const request = { ...options, dispatcher: agent, timeoutMs: EXCHANGE_MS };
    return requestJson(`${url.replace(/\/+$/, "")}${resource}`, request).catch(() => {
      throw unavailable("Keycloak does not answer");
    });
  }

  async function accessToken(): Promise<string> {
    if (known !== undefined) return known;
    const headers = {
      // Read anew for each token, so that it can be rotated.
      authorization: basicAuthorization(adminClientId, readSecret(adminClientSecret, directory)),
      "content-type": "application/x-www-form-urlencoded",
    };
    const resource = `/realms/${encodeURIComponent(adminRealm)}/protocol/openid-connect/token`;
    const request = { method: "POST", headers, body: "grant_type=client_credentials" } as const;
    const { status, body } = await exchange(resource, request);
    const { access_token: token } = membersOf(body);
    if (status !== 200 || typeof token !== "string" || token === "") {
      const hint =
        "Compare adminRealm, adminClientId and its secret with Keycloak; service accounts must be enabled.";
      throw unavailable(`Keycloak gives ${adminClientId} no token: ${status}`, hint);
    }
    known = token;
    return token;
  }

  /** Any answer but 401 and, to a GET, 403 and 5xx: a refused change is of one client. `path` is below the realm. */
  return async (method: "GET" | "POST" | "PUT" | "DELETE", path: string, body?: unknown) => {
    const resource = `/admin/realms/${encodeURIComponent(realm)}/${path}`;
    for (let attempt = 0; ; attempt += 1) {
      const answer = await exchange(resource, { method, token: await accessToken(), body });
      if (answer.status === 401 && attempt === 0) {
        known = undefined;
        continue;
      }
      if (answer.status === 401 || (answer.status === 403 && method === "GET")) {
        const hint = "Give its service account the realm's role manage-clients.";
        throw unavailable(`Keycloak denies ${adminClientId} the clients of realm ${realm}`, hint);
      }
      if (answer.status >= 500 && method === "GET") throw unavailable(`Keycloak answers ${answer.status}`);
      return answer;
    }
  };
}

export function unavailable(what: string, hint = "Start Keycloak, or correct gateway.issuer.url.") {
  return new DrawbridgeError("issuer_unavailable", what, { hint });
}

/** Which organisation manages a client: it closes the client when the registry declares it no more. */
const OWNER_ATTRIBUTE = "drawbridge.owner";
/** Set on a client that was there before the organisation took it over; such a client is closed and never removed. */
const ADOPTED_ATTRIBUTE = "drawbridge.adopted";

/** Of a client that others made anything may be null, and must not keep its own clients from being listed. */
const orNone = <T>(schema: z.ZodType<T>, none: NoInfer<T>) => schema.nullish().transform((it) => it ?? none);
const Texts = orNone(z.record(z.string(), z.string().nullable()), {});
const Names = orNone(z.array(z.string()), []);

const Mapper = z.object({
  id: z.string().optional(),
  name: z.string(),
  protocol: z.string().nullable().default(null),
  protocolMapper: z.string(),
  config: Texts,
});

/** With every other setting that Keycloak reports. */
export const KeycloakClient = z.looseObject({
  id: z.string().min(1),
  clientId: z.string(),
  enabled: orNone(z.boolean(), true),
  secret: z.string().nullish(),
  attributes: Texts,
  protocolMappers: orNone(z.array(Mapper), []),
  defaultClientScopes: Names,
  optionalClientScopes: Names,
});
export type KeycloakClient = z.output<typeof KeycloakClient>;

/** `basic` brings the subject; Keycloak adds `service_account` by itself. */
export const BASIC_SCOPE = "basic";
const SCOPES: ReadonlySet<string> = new Set([BASIC_SCOPE, "service_account"]);
export const AUDIENCE_MAPPER = "audience";

type Owner = Readonly<Record<string, string>>;

export function isOwnedBy({ attributes }: KeycloakClient, owner: string): boolean {
  return attributes[OWNER_ATTRIBUTE] === owner;
}

export function isAdopted({ attributes }: KeycloakClient): boolean {
  return attributes[ADOPTED_ATTRIBUTE] === "true";
}

/** What a found client has to say of its owner: whoever takes over a client that is there already adopts it. */
export function ownerOf(client: KeycloakClient, owner: string): Owner {
  return isOwnedBy(client, owner) ? {} : { [OWNER_ATTRIBUTE]: owner, [ADOPTED_ATTRIBUTE]: "true" };
}

const TOKENS = { "access.token.lifespan": String(TOKEN_LIFE_S), "access.token.signed.response.alg": "ES256" };
const IN_ACCESS_TOKENS = { "access.token.claim": "true", "id.token.claim": "false" };

/** For PUT, and for POST with a client ID: everything but the scopes, which Keycloak takes at creation alone. */
export function clientSettings(audience: string, secret: string, owner: Owner) {
  const protocol = "openid-connect";
  const config = { "included.custom.audience": audience, ...IN_ACCESS_TOKENS };
  return {
    protocol,
    clientAuthenticatorType: "client-secret",
    publicClient: false,
    bearerOnly: false,
    serviceAccountsEnabled: true,
    standardFlowEnabled: false,
    implicitFlowEnabled: false,
    directAccessGrantsEnabled: false,
    fullScopeAllowed: false,
    enabled: true,
    secret,
    attributes: { ...TOKENS, ...owner },
    protocolMappers: [{ name: AUDIENCE_MAPPER, protocol, protocolMapper: "oidc-audience-mapper", config }],
  };
}

export function newClient(clientId: string, owner: string, audience: string, secret: string) {
  return {
    ...clientSettings(audience, secret, { [OWNER_ATTRIBUTE]: owner }),
    clientId,
    defaultClientScopes: [BASIC_SCOPE],
    optionalClientScopes: [],
  };
}

export function extraScopes(scopes: readonly string[]): string[] {
  return scopes.filter((scope) => !SCOPES.has(scope));
}

/** Whether a client is as `clientSettings` says, and has no other mapper or scope. */
export function hasSettings(client: KeycloakClient, settings: ReturnType<typeof clientSettings>): boolean {
  const { protocolMappers, defaultClientScopes, optionalClientScopes } = client;
  const extra = [...protocolMappers.slice(1), ...extraScopes(defaultClientScopes), ...optionalClientScopes];
  return contains(client, settings) && defaultClientScopes.includes(BASIC_SCOPE) && extra.length === 0;
}

/** Whether every member of `wanted`, at any depth, is the same in `found`; a switch that is absent is off. */
function contains(found: unknown, wanted: unknown): boolean {
  if (typeof wanted !== "object" || wanted === null) return (found ?? false) === wanted;
  const members = found as Readonly<Record<string, unknown>> | null | undefined;
  return Object.entries(wanted).every(([key, value]) => contains(members?.[key], value));
}

/** A digest of a found client; whether its secret is the declared one is part of it, the secret itself is not. */
export function clientDigest(client: KeycloakClient, hasDeclaredSecret: boolean): string {
  const { secret: _, id: __, protocolMappers, defaultClientScopes, optionalClientScopes, ...rest } = client;
  const mappers = protocolMappers.map(({ id: ___, ...mapper }) => canonicalize(mapper)).sort();
  const scopes = [defaultClientScopes.toSorted(), optionalClientScopes.toSorted()];
  return sha256Tagged(canonicalize({ ...(rest as JsonObject), mappers, scopes, hasDeclaredSecret }));
}
