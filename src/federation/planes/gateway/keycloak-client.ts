// A declared client as Keycloak's Admin REST API takes it (ClientRepresentation), its secret left out.
// Invariants: client credentials only, no browser flow, no scope beyond `basic`; the same claims and life as
// the one-machine issuer's tokens.
import type { SecretReference } from "../../../runtime/secrets.ts";
import type { KubernetesTarget } from "../../registry/organisation.ts";
import type { Plain } from "../emit-yaml.ts";

interface ClientFacts {
  readonly clientId: string;
  readonly enabled: boolean;
  readonly secret: SecretReference;
  /** Server name of the organisation that it belongs to; null for our own. */
  readonly partner: string | null;
}

export function keycloakClient(
  { realm, issuer }: Pick<KubernetesTarget, "realm"> & { issuer: { audience: string } },
  { clientId, enabled, secret, partner }: ClientFacts,
): Plain {
  return {
    realm,
    /** Who applies this reads the secret there and adds it. */
    secretReference: secret,
    client: {
      clientId,
      enabled,
      publicClient: false,
      serviceAccountsEnabled: true,
      standardFlowEnabled: false,
      implicitFlowEnabled: false,
      directAccessGrantsEnabled: false,
      fullScopeAllowed: false,
      defaultClientScopes: ["basic"],
      optionalClientScopes: [],
      attributes: { "access.token.lifespan": "300", ...(partner === null ? {} : { partner }) },
      protocolMappers: [
        {
          name: "audience",
          protocol: "openid-connect",
          protocolMapper: "oidc-audience-mapper",
          config: { "included.custom.audience": issuer.audience, "access.token.claim": "true" },
        },
      ],
    },
  };
}
