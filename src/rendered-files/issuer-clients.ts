// clients.yaml: the declared clients of an issuer, partners' and own (plane 5).
// Published as docs/reference/schemas/issuer-clients.schema.json.
import * as z from "zod";
import { ServerNameField } from "../domain/identifier-fields.ts";
import { RegistrySecretReference } from "../runtime/secrets.ts";

/** The ID of a client that an issuer declares: the `azp` of its tokens. */
export const DeclaredClientId = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/, {
  error: "must be 1 to 128 letters, digits, '.', '_' and '-', beginning with a letter or digit",
});

const DeclaredClient = z.strictObject({
  clientId: DeclaredClientId,
  enabled: z.boolean().default(true),
  secret: RegistrySecretReference.optional(),
  /** The partner's server name; absent for a client of the organisation itself. */
  partner: ServerNameField.optional(),
});
export type DeclaredClient = z.output<typeof DeclaredClient>;

/** Read again whenever it changes: a disabled client or a rotated secret takes effect at the next request. */
export const ClientsFile = z.strictObject({
  version: z.literal(1),
  clients: z.array(DeclaredClient).superRefine((clients, context) => {
    const clientIds = new Set<string>();
    clients.forEach(({ clientId, enabled, secret }, index) => {
      if (enabled && secret === undefined) {
        context.addIssue({ code: "custom", path: [index, "secret"], message: "an enabled client needs one" });
      }
      if (clientIds.has(clientId)) {
        context.addIssue({ code: "custom", path: [index, "clientId"], message: "declared twice" });
      }
      clientIds.add(clientId);
    });
  }),
});
export type ClientsFile = z.output<typeof ClientsFile>;

/** The longest life of an access token, in seconds, whoever issues it: signed records of closed clients rest on it. */
export const TOKEN_LIFE_S = 300;
