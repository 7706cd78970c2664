// The one-machine issuer's configuration and its declared clients.
// Published as docs/reference/schemas/issuer.schema.json and issuer-clients.schema.json.
import { z } from "zod";
import { durationMs } from "../domain/duration.ts";
import { SecretReference } from "../runtime/secrets.ts";

export const IssuerConfigFile = z.strictObject({
  version: z.literal(1),
  listen: z.strictObject({ host: z.string().default("127.0.0.1"), port: z.int().min(1).max(65_535) }),
  /** The `iss` of every token, and the base of its endpoints. */
  url: z.url({ protocol: /^https?$/ }),
  /** The resource server tokens are for (RFC 8707); it becomes their `aud`. */
  audience: z.string().min(1),
  /** The specification's 300 seconds bound what a removed client can still do. */
  accessTokenLifespan: durationMs("300s"),
  /** Private ES256 signing keys, a JWK set; it must persist, or gateways refuse tokens after a restart. */
  signingKeys: SecretReference,
  clientsFile: z.string().min(1).default("clients.yaml"),
});
export type IssuerConfig = z.output<typeof IssuerConfigFile>;

/** Read again whenever it changes: a disabled client or a rotated secret takes effect at the next request. */
export const ClientsFile = z.strictObject({
  version: z.literal(1),
  clients: z.array(
    z.strictObject({
      /** The `azp` of its tokens. */
      clientId: z.string().regex(/^[A-Za-z0-9._-]{1,128}$/),
      enabled: z.boolean().default(true),
      secret: SecretReference,
      /** The partner's server name; absent for a client of the organisation itself. */
      partner: z.string().optional(),
    }),
  ),
});
export type ClientsFile = z.output<typeof ClientsFile>;
