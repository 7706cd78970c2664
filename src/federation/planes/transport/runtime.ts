// Plane 1 on a homeserver: the include file, a restart when and only when it is needed, and proof from the
// running process. A homeserver reads its whitelist at its start alone.
// Invariants: a whitelist that cuts off whom the registry admits is refused before anything is written; the
// intent to restart is durable before the file changes; restarts stay within their limit across crashes; the
// plane is in force only when the running homeserver names exactly the declared servers.
import { resolve } from "node:path";
import type { Clock } from "../../../domain/clock.ts";
import { sha256Tagged } from "../../../domain/digest.ts";
import { DrawbridgeError } from "../../../domain/errors.ts";
import { type EvidenceItem, evidenceItem } from "../../../records/format/evidence-item.ts";
import { PUBLIC } from "../../../runtime/write-file.ts";
import type { FederationConfig } from "../../config.ts";
import { assertAdmits } from "../admitted.ts";
import { borderStatus } from "../border/status.ts";
import { applyFile, fileDrift, standingText } from "../file-target.ts";
import type { Drift, PlaneOutcome, PlaneProgress, PlaneRuntime } from "../plane.ts";
import { type DesiredInclude, desiredInclude } from "./include-file.ts";
import { TRANSPORT_INCLUDE } from "./render.ts";
import { RestartRecordFile, recentRestarts, runRestartCommand, untilAllowedMs } from "./restart.ts";
import { type RunningWhitelist, runningWhitelist, whitelistDigest } from "./whitelist.ts";

const POLL_MS = 100;
const RETRY_MS = 5_000;

interface Dependencies {
  readonly clock: Clock;
}

/** The transport plane of one deployment. */
export function transportRuntime(config: FederationConfig, { clock }: Dependencies): PlaneRuntime {
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
      return restart.until(include, progress);
    },

    async drift(desired): Promise<readonly Drift[]> {
      const include = desiredInclude(desired);
      const drift = fileDrift(target, include.text);
      if (drift !== undefined) return [{ plane: "transport", ...drift }];
      const running = await runningWhitelist(config);
      if (running === undefined) {
        throw new DrawbridgeError("homeserver_unavailable", "the homeserver does not tell its whitelist", {
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
      const startedAt = clock.now();
      const running = await runningWhitelist(config);
      const admits =
        running !== undefined && (!running.enabled || running.servers.includes(partner.serverName));
      return [
        evidenceItem({
          schema: "svc.federation.evidence_item.v1",
          plane: "transport",
          partner: partner.serverName,
          probe: "whitelist",
          vantage: "operator",
          subject: partner.serverName,
          verdict: running === undefined ? "unknown" : admits ? "open" : "closed",
          layer: "homeserver",
          status: running === undefined ? null : 200,
          reason: running === undefined ? "homeserver_unavailable" : admits ? null : "not_in_whitelist",
          references: running === undefined ? [] : [running.digest],
          at: new Date(startedAt).toISOString(),
          duration_ms: clock.now() - startedAt,
        }),
      ];
    },
  };
}

function isInForce(running: RunningWhitelist | undefined, include: DesiredInclude): boolean {
  return running?.enabled === true && running.digest === whitelistDigest(include.whitelist);
}

/** The homeserver's restart, within its limit, to a verified end. */
class Restart {
  readonly #config: FederationConfig;
  readonly #record: RestartRecordFile;
  readonly #clock: Clock;

  constructor(config: FederationConfig, record: RestartRecordFile, clock: Clock) {
    this.#config = config;
    this.#record = record;
    this.#clock = clock;
  }

  async until(include: DesiredInclude, progress: PlaneProgress): Promise<PlaneOutcome> {
    const { command, maxPerHour, timeout } = this.#config.transport.restart;
    const before = this.#record.read();
    const now = this.#clock.now();
    const waitMs = untilAllowedMs(before, maxPerHour, now);
    if (waitMs > 0) return { state: "deferred", reason: "restart_limit", retryAfterMs: waitMs };

    const process = await this.#process();
    const pending = sha256Tagged(include.text);
    const restarts = [...recentRestarts(before, now), now];
    this.#record.write({ pending, restarts });
    progress.note("restarting the homeserver for a changed whitelist");
    await runRestartCommand(command, this.#config.directory, timeout);
    await this.#whenBack(include, process, now + timeout);
    this.#record.write({ pending: null, restarts });
    progress.note(
      `the homeserver runs with ${include.whitelist.length} servers, ${this.#clock.now() - now} ms`,
    );
    return { state: "in_force", changed: true };
  }

  /** When the process that answers now was started, if one does. */
  async #process(): Promise<string | undefined> {
    try {
      return (await borderStatus(this.#config).status()).started_at;
    } catch (error) {
      // Without its status an old process is told from a new one by the whitelist alone.
      if (error instanceof DrawbridgeError) return undefined;
      throw error;
    }
  }

  /** Waits until another process than `before` answers with the declared whitelist. */
  async #whenBack(include: DesiredInclude, before: string | undefined, deadline: number): Promise<void> {
    for (;;) {
      if (isInForce(await runningWhitelist(this.#config), include)) {
        const process = await this.#process();
        if (before === undefined || (process !== undefined && process !== before)) return;
      }
      if (this.#clock.now() >= deadline) break;
      await this.#clock.sleep(POLL_MS);
    }
    throw new DrawbridgeError(
      "homeserver_unavailable",
      "the homeserver did not come back with the declared whitelist in time",
      {
        hint: "Read the homeserver's log; see that it reads transport.includeFile, and that the restart command restarts it.",
      },
    );
  }
}
