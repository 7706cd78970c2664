// Plane 3 on a homeserver: policy.json where the border module reads it. Invariants: the policy is checked against the
// registry before it is written; it counts as applied only when the module itself reports its digest.
import { resolve } from "node:path";
import type { Clock } from "../../../domain/clock.ts";
import { DrawbridgeError, undefinedFor } from "../../../domain/errors.ts";
import { counted } from "../../../domain/printable.ts";
import { PolicyFile, policyDigest } from "../../../rendered-files/border-policy.ts";
import { lookUntil } from "../../../runtime/concurrency.ts";
import { PUBLIC } from "../../../runtime/write-file.ts";
import type { FederationConfig } from "../../config.ts";
import { applyFile, fileDrift } from "../file-target.ts";
import {
  assertAdmits,
  type OperatorFinding,
  observeInside,
  outcomeOf,
  type PlaneRuntime,
  renderedFile,
} from "../plane.ts";
import { BORDER_POLICY } from "./render.ts";
import { type BorderStatus, borderStatus } from "./status.ts";

// The module reads its file at every request, so a second request is needed only when it is stuck.
const IN_FORCE = { withinMs: 5_000, everyMs: 50 };
const UNLESS_DOWN = undefinedFor("homeserver_unavailable");

export function borderRuntime(config: FederationConfig, clock: Clock): PlaneRuntime {
  const target = resolve(config.directory, config.border.policyFile);
  const module = borderStatus(config);

  async function whenInForce(digest: string): Promise<BorderStatus | undefined> {
    const ask = () => module.status().catch(UNLESS_DOWN);
    const isOver = (status: BorderStatus | undefined) => status === undefined || isInForce(status, digest);
    const status = await lookUntil(clock, IN_FORCE, ask, isOver);
    if (status === undefined || isInForce(status, digest)) return status;
    throw new DrawbridgeError(
      "homeserver_refused",
      `the border module has another policy in force: ${status.policy_digest ?? "none"}, alarm ${status.alarm ?? "none"}`,
      {
        hint: "See that policy_file in homeserver.yaml is border.policyFile, and docs/reference/border.md for the alarm.",
      },
    );
  }

  return {
    name: "border",

    async apply(desired, progress) {
      const { text, value: policy } = renderedFile(desired, BORDER_POLICY, PolicyFile);
      assertAdmits(desired.registry, "border", BORDER_POLICY, policy.allowed_servers);
      const changed = applyFile(target, text, PUBLIC);
      const status = await whenInForce(policyDigest(policy));
      if (status === undefined) return outcomeOf([{ changed, deferred: "homeserver_unavailable" }]);
      progress.note(`policy ${status.policy_digest} is in force for ${counted(status.servers, "server")}`);
      if (status.alarm !== null) progress.note(`the border module raises an alarm: ${status.alarm}`);
      return { state: "in_force", changed };
    },

    async drift(desired) {
      const { text, value: policy } = renderedFile(desired, BORDER_POLICY, PolicyFile);
      const drift = fileDrift(target, text);
      if (drift !== undefined) return [{ plane: "border", ...drift }];
      const status = await module.status();
      return isInForce(status, policyDigest(policy))
        ? []
        : [{ plane: "border", subject: "policy", kind: "not_in_force", found: status.policy_digest }];
    },

    async probe(desired, { partner }) {
      const about = { plane: "border", partner: partner.serverName, layer: "border" } as const;
      const observe = (probe: string, subject: string | null, find: () => Promise<OperatorFinding>) =>
        observeInside(clock, { ...about, probe, subject }, async () => {
          const found = await find().catch(UNLESS_DOWN);
          return found === undefined
            ? { verdict: "unknown", reason: "homeserver_unavailable" }
            : { status: 200, ...found };
        });
      return [
        await observe("policy_check", partner.serverName, async () => {
          const { allowed, policy_digest } = await module.check(partner.serverName);
          return {
            verdict: allowed ? "open" : "closed",
            reason: allowed ? null : "server_not_allowed",
            references: policy_digest === null ? [] : [policy_digest],
          };
        }),
        await observe("policy_in_force", null, async () => {
          const { value: policy } = renderedFile(desired, BORDER_POLICY, PolicyFile);
          const status = await module.status();
          const { server_not_allowed, invite_rule_denied } = status.counts;
          const declared = policy.allowed_servers.includes(partner.serverName) ? "open" : "closed";
          const inForce = isInForce(status, policyDigest(policy));
          return {
            verdict: inForce ? declared : "unknown",
            reason: inForce ? null : (status.alarm ?? "policy_not_in_force"),
            references: [
              ...(status.policy_digest === null ? [] : [status.policy_digest]),
              `server_not_allowed=${server_not_allowed}`,
              `invite_rule_denied=${invite_rule_denied}`,
              `started_at=${status.started_at}`,
            ],
          };
        }),
      ];
    },
  };
}

function isInForce(status: BorderStatus, digest: string): boolean {
  return status.policy_digest === digest && status.state === "in_force";
}
