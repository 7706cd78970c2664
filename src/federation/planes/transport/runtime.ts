// Plane 1 on a homeserver: the include file, a restart when and only when it is needed, and proof from the
// running process. A homeserver reads its whitelist at its start alone.
// Invariants: a whitelist that cuts off whom the registry admits is refused before anything is written; the
// intent to restart is durable before the file changes; restarts stay within their limit across crashes; the
// plane is in force only when the running homeserver names exactly the declared servers.
import { resolve } from "node:path";
import { sha256Tagged } from "../../../domain/digest.ts";
import { DrawbridgeError } from "../../../domain/errors.ts";
import type { EvidenceItem } from "../../../records/format/evidence-item.ts";
import { PUBLIC } from "../../../runtime/write-file.ts";
import type { FederationConfig } from "../../config.ts";
import { assertAdmits } from "../admitted.ts";
import { applyFile, fileDrift, standingText } from "../file-target.ts";
import {
  type Drift,
  observeInside,
  type PlaneOutcome,
  type PlaneRuntime,
  type RuntimeDependencies,
} from "../plane.ts";
import { desiredInclude, TRANSPORT_INCLUDE } from "./render.ts";
import { Restart, RestartRecordFile } from "./restart.ts";
import { isInForce, runningWhitelist } from "./whitelist.ts";

const RETRY_MS = 5_000;

/** The transport plane of one deployment. */
export function transportRuntime(config: FederationConfig, { clock }: RuntimeDependencies): PlaneRuntime {
  const target = resolve(config.directory, config.transport.includeFile);
  const record = new RestartRecordFile(
    resolve(config.directory, config.state),
    config.transport.restart.maxPerHour,
  );
  const restart = new Restart(config, record, clock);
  return {
    name: "transport",

    async apply(desired, progress): Promise<PlaneOutcome> {
      const include = desiredInclude(desired);
      assertAdmits(desired.registry, "transport", TRANSPORT_INCLUDE, include.whitelist);
      const digest = sha256Tagged(include.text);
      if (standingText(target) !== include.text) record.write({ ...record.read(), pending: digest });
      const changed = applyFile(target, include.text, PUBLIC);

      const running = await runningWhitelist(config);
      const isPending = record.read().pending !== null;
      if (running === undefined && !isPending) {
        return { state: "deferred", reason: "homeserver_unavailable", retryAfterMs: RETRY_MS };
      }
      if (!isPending && isInForce(running, include)) return { state: "in_force", changed };
      return restart.run(include, progress);
    },

    async drift(desired): Promise<readonly Drift[]> {
      const include = desiredInclude(desired);
      const drift = fileDrift(target, include.text);
      if (drift !== undefined) return [{ plane: "transport", ...drift }];
      const running = await runningWhitelist(config);
      if (running === undefined) {
        throw new DrawbridgeError("homeserver_unavailable", "the homeserver does not show its whitelist", {
          hint: "Start the homeserver.",
        });
      }
      return isInForce(running, include)
        ? []
        : [
            {
              plane: "transport",
              subject: "federation_domain_whitelist",
              kind: "not_in_force",
              found: running.enabled ? running.digest : null,
            },
          ];
    },

    async probe(_desired, { partner }): Promise<readonly EvidenceItem[]> {
      const { serverName } = partner;
      const about = {
        plane: "transport",
        partner: serverName,
        probe: "whitelist",
        subject: serverName,
      } as const;
      const item = await observeInside(clock, { ...about, layer: "homeserver" }, async () => {
        const running = await runningWhitelist(config);
        if (running === undefined) return { verdict: "unknown", reason: "homeserver_unavailable" };
        const admits = !running.enabled || running.servers.includes(serverName);
        return {
          verdict: admits ? "open" : "closed",
          status: 200,
          reason: admits ? null : "not_in_whitelist",
          references: [running.digest],
        };
      });
      return [item];
    },
  };
}
