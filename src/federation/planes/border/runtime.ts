// Plane 3 on a homeserver: policy.json where the border module reads it, and the module's status resource. Invariants:
// the policy is checked against the registry before it is written; it counts as applied only when the module itself
// reports its digest; an answer that is not in the documented form (docs/reference/border.md) is an error.
import { resolve } from "node:path";
import * as z from "zod";
import type { Clock } from "../../../domain/clock.ts";
import { DrawbridgeError, undefinedFor } from "../../../domain/errors.ts";
import { Sha256Digest } from "../../../domain/identifier-fields.ts";
import { counted } from "../../../domain/printable.ts";
import { PolicyFile, policyDigest } from "../../../rendered-files/border-policy.ts";
import { pollUntil } from "../../../runtime/concurrency.ts";
import { readSecret } from "../../../runtime/secrets.ts";
import type { FederationConfig } from "../../config.ts";
import { readResource, resourceUrl } from "../../homeserver/api.ts";
import { applyFile, fileDrift } from "../file-target.ts";
import { assertAdmits, type Find, observer, outcomeOf, type PlaneRuntime, renderedFile } from "../plane.ts";
import { BORDER_POLICY } from "./render.ts";

// The module reads its file at every request, so a second request is needed only when it is stuck.
const IN_FORCE = { withinMs: 5_000, everyMs: 50 };
const UNLESS_DOWN = undefinedFor("homeserver_unavailable");

export function borderRuntime(config: FederationConfig, clock: Clock): PlaneRuntime {
  const target = resolve(config.directory, config.border.policyFile);
  const module = borderStatus(config);

  async function whenInForce(digest: string): Promise<BorderStatus | undefined> {
    const ask = () => module.status().catch(UNLESS_DOWN);
    const isOver = (status: BorderStatus | undefined) => status === undefined || isInForce(status, digest);
    const status = await pollUntil(clock, IN_FORCE, ask, isOver);
    if (status === undefined || isInForce(status, digest)) return status;
    const { policy_digest, alarm } = status;
    const found = `another policy in force: ${policy_digest ?? "none"}, alarm ${alarm ?? "none"}`;
    throw new DrawbridgeError("homeserver_refused", `the border module has ${found}`, {
      hint: "See that policy_file in homeserver.yaml is border.policyFile, and docs/reference/border.md for the alarm.",
    });
  }

  return {
    async apply(desired, note) {
      const { text, value: policy } = renderedFile(desired, BORDER_POLICY, PolicyFile);
      assertAdmits(desired.registry, "border", BORDER_POLICY, policy.allowed_servers);
      const changed = applyFile(target, text);
      const status = await whenInForce(policyDigest(policy));
      if (status === undefined) return outcomeOf([{ changed, deferred: "homeserver_unavailable" }]);
      note(`policy ${status.policy_digest} is in force for ${counted(status.servers, "server")}`);
      if (status.alarm !== null) note(`the border module raises an alarm: ${status.alarm}`);
      return { state: "in_force", changed };
    },

    async drift(desired) {
      const { text, value: policy } = renderedFile(desired, BORDER_POLICY, PolicyFile);
      const drift = fileDrift(target, text);
      if (drift !== undefined) return [drift];
      const status = await module.status();
      if (isInForce(status, policyDigest(policy))) return [];
      return [{ subject: "policy", kind: "not_in_force", found: status.policy_digest }];
    },

    async probe(desired, { partner }) {
      const { serverName } = partner;
      const seal = observer(clock, "border", serverName);
      const observe = (probe: string, subject: string | null, find: Find) =>
        seal(probe, "border", subject, async () => {
          const found = await find().catch(UNLESS_DOWN);
          if (found === undefined) return { verdict: "unknown", reason: "homeserver_unavailable" };
          return { status: 200, ...found };
        });
      return [
        await observe("policy_check", serverName, async () => {
          const { allowed, policy_digest } = await module.check(serverName);
          const references = policy_digest === null ? [] : [policy_digest];
          if (allowed) return { verdict: "open", references };
          return { verdict: "closed", reason: "server_not_allowed", references };
        }),
        await observe("policy_in_force", null, async () => {
          const { value: policy } = renderedFile(desired, BORDER_POLICY, PolicyFile);
          const status = await module.status();
          const { server_not_allowed, invite_rule_denied } = status.counts;
          const references = [
            ...(status.policy_digest === null ? [] : [status.policy_digest]),
            `server_not_allowed=${server_not_allowed}`,
            `invite_rule_denied=${invite_rule_denied}`,
            `started_at=${status.started_at}`,
          ];
          if (!isInForce(status, policyDigest(policy)))
            return { verdict: "unknown", reason: status.alarm ?? "policy_not_in_force", references };
          return { verdict: policy.allowed_servers.includes(serverName) ? "open" : "closed", references };
        }),
      ];
    },
  };
}

function isInForce(status: BorderStatus, digest: string): boolean {
  return status.policy_digest === digest && status.state === "in_force";
}

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

const Flag = z.boolean();
const EventId = z.string().nullable();
const Enforcement = z.object({ allowed: Flag, cached: Flag, state_event_id: EventId, enforces_state: Flag });
const Check = z.object({ allowed: Flag, policy_digest: Sha256Digest.nullable() });
const Differences = z.object({ differing: z.array(z.string()), compared: z.int().min(1) });
const Refreshed = z.object({ refreshed: z.literal(true) });
const JoinedRooms = z.object({ rooms: z.array(z.string().min(1)), complete: Flag });

const PREFIX = "/_synapse/client/drawbridge/v1";
const TOKEN_HINT = "Put the token of the homeserver's status_token_file where border.statusToken says.";
const ABOUT = {
  what: "the border module's status resource",
  down: "Start the homeserver, and see that its status_token_file holds a token.",
  hints: {
    401: TOKEN_HINT,
    403: TOKEN_HINT,
    404: "Load drawbridge_border.BorderModule, of this version of Drawbridge, in homeserver.yaml (docs/operating/border-module.md).",
    other: "Install the border module of this version of Drawbridge.",
  },
} as const;

/** @throws DrawbridgeError, from each request: `homeserver_unavailable`, `homeserver_refused`, `secret_unavailable` */
export function borderStatus(config: Pick<FederationConfig, "border" | "directory" | "homeserver">) {
  const ask = async <Schema extends z.ZodType>(schema: Schema, resource: string, body?: object) => {
    // Read anew for each request, so that it can be rotated.
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
    differing: async (rooms: readonly string[], servers: readonly string[]): Promise<readonly string[]> => {
      const found: string[] = [];
      // The homeserver compares the first of them, as many as it has time for in one request.
      for (let left = rooms; left.length > 0; ) {
        const about = { rooms: left, servers };
        const { differing, compared } = await ask(Differences, "/enforcement/differing", about);
        found.push(...differing);
        left = left.slice(compared);
      }
      return found;
    },
    /** Every room that users of ours are in, by what the homeserver decides by: its own list may be old, or empty. */
    rooms: async (): Promise<readonly string[]> => {
      const found: string[] = [];
      for (let isWhole = false; !isWhole; ) {
        const { rooms, complete } = await ask(JoinedRooms, "/rooms", { after: found.at(-1) ?? "" });
        found.push(...rooms);
        isWhole = complete;
      }
      return found;
    },
    refresh: (room: string) => ask(Refreshed, "/enforcement/refresh", { room_id: room }),
    check: (server: string) => ask(Check, `/check?${new URLSearchParams({ server })}`),
  };
}
