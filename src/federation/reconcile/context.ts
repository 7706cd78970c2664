// What a pass of the reconciler works with.
import type { Clock } from "../../domain/clock.ts";
import type { PlaneRuntimes } from "../planes/runtimes.ts";
import type { Repository } from "../repository/repository.ts";
import type { StateFolder } from "../state/folder.ts";
import type { PartnerCache } from "../state/partner-cache.ts";
import type { Reporter } from "./events.ts";

export interface ReconcileContext {
  readonly repository: Repository;
  readonly state: StateFolder;
  readonly cache: PartnerCache;
  readonly planes: PlaneRuntimes;
  readonly clock: Clock;
  readonly reporter: Reporter;
  /** OpenSSH allowed signers; absent: any commit is taken. */
  readonly allowedSignersFile?: string | undefined;
}

/** What the service that follows the branch holds as long as it runs: one service a state folder. */
export const SERVICE_LOCK = "service";

/** UTC, ISO 8601 with milliseconds. */
export function timestamp(ms: number): string {
  return new Date(ms).toISOString();
}
