// probe.yaml: who probes an organisation from outside, and with what.
// Invariants: secrets are references; a section that is absent leaves out its probes, and the report says so.
// Published as docs/reference/schemas/probe.schema.json.
import * as z from "zod";
import { durationMs } from "../../domain/duration.ts";
import { ServerNameField } from "../../domain/identifier-fields.ts";
import { type InFolder, loadConfig } from "../../runtime/load-yaml.ts";
import { SecretReference } from "../../runtime/secrets.ts";
import { Path, Url } from "../config.ts";

/** As homeservers accept one, which is wider than the grammar: the server follows the first colon. */
const USER_ID = /^@[^:]*:[^\s]+$/;

const User = z.strictObject({
  serverName: ServerNameField,
  homeserverUrl: Url,
  userId: z.string().regex(USER_ID),
  accessToken: SecretReference,
});
export type ProbeUser = z.output<typeof User>;

export const ProbeFile = z.strictObject({
  version: z.literal(1),
  target: z.strictObject({
    serverName: ServerNameField,
    invitee: z.string().regex(USER_ID).optional(),
    agents: z.array(z.strictObject({ name: z.string().min(1), cardUrl: Url, invokeUrl: Url })).default([]),
    tokenEndpoint: Url.optional(),
    /** The resource (RFC 8707) that a token is asked for. */
    audience: z.string().min(1).optional(),
    rooms: z.array(z.string().regex(/^[!#]./su)).default([]),
  }),
  as: z.strictObject({
    serverName: ServerNameField,
    /** The signing key of the partner's homeserver: `ed25519 VERSION SEED`. */
    signingKeyFile: Path.optional(),
    federationProxy: Url.optional(),
    federationCaFile: Path.optional(),
    client: z
      .strictObject({
        clientId: z.string().min(1),
        clientSecret: SecretReference,
        /** A token that was issued before: tried where no new one is given. */
        heldToken: SecretReference.optional(),
      })
      .optional(),
    /** A member of the rooms: writes into them, and reads them. An administrator sees more: what its server holds. */
    user: User.optional(),
    /** Of the same server, and no member of the rooms: joins, and leaves again. */
    otherUser: User.optional(),
  }),
  /** A user of a neutral third server, who is a member of the rooms. */
  witness: User.optional(),
  /** A user of the target and member of the rooms, who says whether something arrived there. */
  observer: User.optional(),
  arrivalTimeout: durationMs("10s", { min: "100ms" }),
});
export type ProbeConfig = InFolder<z.output<typeof ProbeFile>>;

export const loadProbeConfig = (file: string): ProbeConfig => loadConfig(ProbeFile, file);
