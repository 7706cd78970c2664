// Keycloak's Admin REST API (26): the few requests that clients need, as a service account.
// Invariants: its token comes by client credentials, is kept until shortly before it ends and requested anew once
// when it is refused; no redirect is followed, so that it goes to the configured address alone; every exchange
// has a deadline; neither token, secret nor body reaches an error.
import { Agent } from "undici";
import { z } from "zod";
import { canonicalize } from "../../../domain/canonical-json.ts";
import type { Clock } from "../../../domain/clock.ts";
import { sha256Tagged } from "../../../domain/digest.ts";
import { DrawbridgeError } from "../../../domain/errors.ts";
import { membersOf } from "../../../domain/json.ts";
import { TOKEN_LIFE_S } from "../../../rendered-files/issuer-clients.ts";
import { basicAuthorization, type JsonRequest, requestJson } from "../../../runtime/http.ts";
import { readInput } from "../../../runtime/read-input.ts";

export interface KeycloakAccess {
  /** Base URL, without `/realms` or a final slash. */
  readonly url: string;
  readonly realm: string;
  readonly adminRealm: string;
  readonly adminClientId: string;
  /** Read anew for each token, so that it can be rotated. */
  readonly adminClientSecret: () => string;
  readonly caFile?: string | undefined;
}

export interface AdminAnswer {
  readonly status: number;
  /** Parsed JSON; undefined when there was none. */
  readonly body: unknown;
}

const EXCHANGE_MS = 10_000;
/** A Keycloak that is down must not hold up what the gateway closes. */
const CONNECT_MS = 2_000;
const RENEW_BEFORE_MS = 15_000;

export class KeycloakAdmin {
  readonly #access: KeycloakAccess;
  readonly #clock: Clock;
  #agent: Agent | undefined;
  #token: { readonly value: string; readonly renewAt: number } | undefined;

  constructor(access: KeycloakAccess, clock: Clock) {
    this.#access = access;
    this.#clock = clock;
  }

  /**
   * @param path below the realm, such as `clients`
   * @returns the answer, whatever its status but 401, 403 and 5xx
   * @throws DrawbridgeError `issuer_unavailable`
   */
  async call(method: "GET" | "POST" | "PUT" | "DELETE", path: string, body?: unknown): Promise<AdminAnswer> {
    const url = `${this.#access.url}/admin/realms/${encodeURIComponent(this.#access.realm)}/${path}`;
    for (let attempt = 0; ; attempt += 1) {
      const token = await this.#accessToken();
      const answer = await this.#exchange(url, {
        method,
        token,
        body,
      });
      if (answer.status === 401 && attempt === 0) {
        this.#token = undefined;
        continue;
      }
      if (answer.status === 401 || answer.status === 403) {
        throw unavailable(
          `Keycloak denies ${this.#access.adminClientId} the clients of realm ${this.#access.realm}`,
          "Give its service account the realm's role manage-clients.",
        );
      }
      if (answer.status >= 500) throw unavailable(`Keycloak answers ${answer.status}`);
      return answer;
    }
  }

  async #accessToken(): Promise<string> {
    const now = this.#clock.now();
    if (this.#token !== undefined && now < this.#token.renewAt) return this.#token.value;
    const { url, adminRealm, adminClientId, adminClientSecret } = this.#access;
    const { status, body } = await this.#exchange(
      `${url}/realms/${encodeURIComponent(adminRealm)}/protocol/openid-connect/token`,
      {
        method: "POST",
        headers: {
          authorization: basicAuthorization(adminClientId, adminClientSecret()),
          "content-type": "application/x-www-form-urlencoded",
        },
        body: "grant_type=client_credentials",
      },
    );
    const { access_token: value, expires_in: lifeS } = membersOf(body);
    if (status !== 200 || typeof value !== "string" || value === "") {
      throw unavailable(
        `Keycloak gives ${adminClientId} no token: ${status}`,
        "Compare adminRealm, adminClientId and its secret with Keycloak; service accounts must be enabled.",
      );
    }
    const lifeMs = typeof lifeS === "number" ? lifeS * 1_000 : 0;
    this.#token = { value, renewAt: now + Math.max(lifeMs - RENEW_BEFORE_MS, lifeMs / 2) };
    return value;
  }

  async #exchange(url: string, options: Omit<JsonRequest, "timeoutMs">): Promise<AdminAnswer> {
    const dispatcher = this.#dispatcher();
    try {
      return await requestJson(url, { ...options, dispatcher, timeoutMs: EXCHANGE_MS });
    } catch {
      throw unavailable("Keycloak does not answer");
    }
  }

  #dispatcher(): Agent {
    const { caFile } = this.#access;
    this.#agent ??= new Agent({
      connections: 4,
      // Short, so that a command that used it can end.
      keepAliveTimeout: 1_000,
      connect: {
        timeout: CONNECT_MS,
        ...(caFile !== undefined && { ca: readInput(caFile, "Check gateway.issuer.caFile.") }),
      },
    });
    return this.#agent;
  }
}

function unavailable(what: string, hint = "Start Keycloak, or correct gateway.issuer.url."): DrawbridgeError {
  return new DrawbridgeError("issuer_unavailable", what, { hint });
}

// A declared client's settings in Keycloak, and how a client found there differs from them.
// Invariants: client credentials alone; tokens of five minutes, signed ES256, for one audience; no mapper or
// scope but those that bring this about, because each could put another claim into a token; the secret takes
// part in a comparison and is in no output.

/** Which organisation manages a client: it closes the client when the registry declares it no more. */
const OWNER_ATTRIBUTE = "drawbridge.owner";
/** Set on a client that was there before the organisation took it over; such a client is closed and never removed. */
const ADOPTED_ATTRIBUTE = "drawbridge.adopted";

const Mapper = z.object({
  id: z.string().optional(),
  name: z.string(),
  protocolMapper: z.string(),
  config: z.record(z.string(), z.string()).default({}),
});

/** The part of Keycloak's ClientRepresentation that counts here. */
export const KeycloakClient = z.object({
  id: z.string().min(1),
  clientId: z.string(),
  enabled: z.boolean().default(true),
  secret: z.string().optional(),
  protocol: z.string().optional(),
  clientAuthenticatorType: z.string().optional(),
  publicClient: z.boolean().default(false),
  bearerOnly: z.boolean().default(false),
  serviceAccountsEnabled: z.boolean().default(false),
  standardFlowEnabled: z.boolean().default(false),
  implicitFlowEnabled: z.boolean().default(false),
  directAccessGrantsEnabled: z.boolean().default(false),
  fullScopeAllowed: z.boolean().default(false),
  attributes: z.record(z.string(), z.string()).default({}),
  protocolMappers: z.array(Mapper).default([]),
  defaultClientScopes: z.array(z.string()).default([]),
  optionalClientScopes: z.array(z.string()).default([]),
});
export type KeycloakClient = z.output<typeof KeycloakClient>;

const SETTINGS = {
  protocol: "openid-connect",
  clientAuthenticatorType: "client-secret",
  publicClient: false,
  bearerOnly: false,
  serviceAccountsEnabled: true,
  standardFlowEnabled: false,
  implicitFlowEnabled: false,
  directAccessGrantsEnabled: false,
  fullScopeAllowed: false,
} as const;

const ATTRIBUTES = {
  "access.token.lifespan": String(TOKEN_LIFE_S),
  "access.token.signed.response.alg": "ES256",
} as const;

/** `basic` brings the subject; Keycloak adds `service_account` by itself. */
export const BASIC_SCOPE = "basic";
const SCOPES: ReadonlySet<string> = new Set([BASIC_SCOPE, "service_account"]);

const AUDIENCE_MAPPER = "audience";

/** The attributes that say who manages a client. */
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

/** For PUT, and for POST with a client ID: everything but the scopes, which Keycloak takes at creation alone. */
export function clientSettings(audience: string, secret: string, owner: Owner) {
  return {
    ...SETTINGS,
    enabled: true,
    secret,
    attributes: { ...ATTRIBUTES, ...owner },
    protocolMappers: [
      {
        name: AUDIENCE_MAPPER,
        protocol: "openid-connect",
        protocolMapper: "oidc-audience-mapper",
        config: {
          "included.custom.audience": audience,
          "access.token.claim": "true",
          "id.token.claim": "false",
        },
      },
    ],
  };
}

/** A client that is not there yet. */
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

/** Mappers that do not belong there, by ID. The one for the audience stays, and is set right by PUT. */
export function extraMappers({ protocolMappers }: KeycloakClient): string[] {
  return protocolMappers.flatMap(({ id, name }) =>
    name === AUDIENCE_MAPPER || id === undefined ? [] : [id],
  );
}

/** Whether an enabled client is as it should be; its secret is compared apart. */
export function hasSettings(client: KeycloakClient, audience: string): boolean {
  const [mapper] = client.protocolMappers;
  return (
    Object.entries(SETTINGS).every(([key, value]) => client[key as keyof typeof SETTINGS] === value) &&
    Object.entries(ATTRIBUTES).every(([key, value]) => client.attributes[key] === value) &&
    client.protocolMappers.length === 1 &&
    mapper?.name === AUDIENCE_MAPPER &&
    mapper.protocolMapper === "oidc-audience-mapper" &&
    mapper.config["included.custom.audience"] === audience &&
    mapper.config["access.token.claim"] === "true" &&
    client.defaultClientScopes.includes(BASIC_SCOPE) &&
    extraScopes(client.defaultClientScopes).length === 0 &&
    client.optionalClientScopes.length === 0
  );
}

/** A digest of a found client; whether its secret is the declared one is part of it, the secret itself is not. */
export function clientDigest(client: KeycloakClient, hasDeclaredSecret: boolean): string {
  const { secret: _, id: __, protocolMappers, defaultClientScopes, optionalClientScopes, ...rest } = client;
  return sha256Tagged(
    canonicalize({
      ...rest,
      protocol: rest.protocol ?? null,
      clientAuthenticatorType: rest.clientAuthenticatorType ?? null,
      protocolMappers: protocolMappers
        .map(({ name, protocolMapper, config }) => ({ name, protocolMapper, config }))
        .sort((a, b) => (a.name < b.name ? -1 : 1)),
      defaultClientScopes: defaultClientScopes.toSorted(),
      optionalClientScopes: optionalClientScopes.toSorted(),
      hasDeclaredSecret,
    }),
  );
}
