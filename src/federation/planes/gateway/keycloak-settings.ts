// A declared client's settings in Keycloak, and how a client found there differs from them.
// Invariants: client credentials alone; tokens of five minutes, signed ES256, for one audience; no mapper or
// scope but those that bring this about, because each could put another claim into a token; the secret takes
// part in a comparison and is in no output.
import { z } from "zod";
import { canonicalize } from "../../../domain/canonical-json.ts";
import { sha256Tagged } from "../../../domain/digest.ts";
import { TOKEN_LIFE_S } from "../../../rendered-files/issuer-clients.ts";

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
