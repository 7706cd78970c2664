// The one-machine issuer's configuration. Published as docs/reference/schemas/issuer.schema.json.
import * as z from "zod";
import { durationMs } from "../domain/duration.ts";
import { TOKEN_LIFE_S } from "../rendered-files/issuer-clients.ts";
import { type InFolder, ListenAddress, loadConfig } from "../runtime/load-yaml.ts";
import { SecretReference } from "../runtime/secrets.ts";

/** The `iss` is compared as a string everywhere, so it is kept as written: an origin without a path. */
const Origin = z.url({ protocol: /^https?$/ }).refine((value) => URL.parse(value)?.origin === value, {
  error: "must be an origin such as https://id.example.org, without a path or final slash",
});

const ResourceUri = z
  .string()
  .min(1)
  .refine((value) => URL.canParse(value) && !value.includes("#"), {
    error: "must be an absolute URI without fragment, such as https://agents.example.org",
  });

export const IssuerConfigFile = z.strictObject({
  version: z.literal(1),
  listen: ListenAddress,
  /** The `iss` of every token, and the base of its endpoints: `/token` and `/jwks`. */
  url: Origin,
  /** The resource server tokens are for (RFC 8707); it becomes their `aud`. */
  audience: ResourceUri,
  /** The lifespan bounds what a removed client can still do; evidence and signed records state the longest one. */
  accessTokenLifespan: durationMs(`${TOKEN_LIFE_S}s`).refine(
    (ms) => ms >= 1_000 && ms <= TOKEN_LIFE_S * 1_000 && ms % 1_000 === 0,
    { error: `must be whole seconds, at most ${TOKEN_LIFE_S}` },
  ),
  /** Private ES256 signing keys, a JWK set; it must persist, or gateways refuse tokens after a restart. */
  signingKeys: SecretReference,
  clientsFile: z.string().min(1).default("clients.yaml"),
});
export type IssuerConfig = InFolder<z.output<typeof IssuerConfigFile>>;

export const loadIssuerConfig = (file: string): IssuerConfig => loadConfig(IssuerConfigFile, file);
