// Client of the border module's status resource on the homeserver (docs/reference/border.md).
// Invariants: the token is read anew for each request, so that it can be rotated; an answer that is not in the
// documented form is an error.
import * as z from "zod";
import { Sha256Digest } from "../../../domain/digest.ts";
import { readSecret } from "../../../runtime/secrets.ts";
import type { FederationConfig } from "../../config.ts";
import { readResource, resourceUrl } from "../../homeserver/api.ts";

const Status = z.object({
  /** Of the policy in force, or that denies all; null when no file could be read. */
  policy_digest: Sha256Digest.nullable(),
  loaded_at: z.iso.datetime(),
  /** When the homeserver's process loaded the module: another one means that it has been restarted. */
  started_at: z.iso.datetime(),
  state: z.enum(["in_force", "last_valid", "deny_all"]),
  alarm: z.string().nullable(),
  servers: z.int().min(0),
  invite_rule: z.literal("deny_all").nullable(),
  counts: z.object({ server_not_allowed: z.int().min(0), invite_rule_denied: z.int().min(0) }),
});
export type BorderStatus = z.output<typeof Status>;

const Enforcement = z.object({
  allowed: z.boolean(),
  cached: z.boolean(),
  state_event_id: z.string().nullable(),
  enforces_state: z.boolean(),
});
export type AclEnforcement = z.output<typeof Enforcement>;

const Check = z.object({ allowed: z.boolean(), policy_digest: Sha256Digest.nullable() });

const Differences = z.object({ differing: z.array(z.string()) });

const Refreshed = z.object({ refreshed: z.literal(true) });

const PREFIX = "/_synapse/client/drawbridge/v1";

const TOKEN_HINT = "Put the token of the homeserver's status_token_file where border.statusToken says.";
const ABOUT = {
  what: "the border module's status resource",
  down: "Start the homeserver, and see that its status_token_file holds a token.",
  hints: {
    401: TOKEN_HINT,
    403: TOKEN_HINT,
    404: "Load drawbridge_border.BorderModule in homeserver.yaml (docs/operating/border-module.md).",
    other: "Install the border module of this version of Drawbridge.",
  },
} as const;

/** @throws DrawbridgeError, from each request: `homeserver_unavailable`, `homeserver_refused`, `secret_unavailable` */
export function borderStatus(config: Pick<FederationConfig, "border" | "directory" | "homeserver">) {
  const ask = async <Schema extends z.ZodType>(
    schema: Schema,
    resource: string,
    body?: Readonly<Record<string, unknown>>,
  ): Promise<z.output<Schema>> => {
    const token = readSecret(config.border.statusToken, config.directory);
    const url = resourceUrl(config.homeserver.url, `${PREFIX}${resource}`);
    return readResource(schema, url, { token, body }, ABOUT);
  };
  return {
    status: () => ask(Status, "/border"),
    /** What the homeserver enforces of a room's ACL for a server, its port without a part in it. */
    enforcement: (room: string, server: string) =>
      ask(Enforcement, `/enforcement?${new URLSearchParams({ room_id: room, server })}`),
    /** Rooms whose ACL in force differs from their state, for one of these servers or any; at most 1,000 of each. */
    differing: async (rooms: readonly string[], servers: readonly string[]): Promise<readonly string[]> =>
      (await ask(Differences, "/enforcement/differing", { rooms, servers })).differing,
    refresh: async (room: string): Promise<void> => {
      await ask(Refreshed, "/enforcement/refresh", { room_id: room });
    },
    check: (server: string) => ask(Check, `/check?${new URLSearchParams({ server })}`),
  };
}
export type BorderStatusClient = ReturnType<typeof borderStatus>;
