// What every command and the reconciler work with: a deployment's repository, state and planes.
import { resolve } from "node:path";
import type { Clock, Random } from "../../domain/clock.ts";
import type { Part } from "../../records/format/fields.ts";
import type { FederationConfig } from "../config.ts";
import { type PlaneRuntimes, planeRuntimes } from "../planes/runtimes.ts";
import { parseRevision, Repository } from "../repository/repository.ts";
import type { SigningPolicy } from "../repository/signatures.ts";
import type { CommitAuthor } from "../repository/write-commit.ts";
import { StateFolder } from "../state/folder.ts";
import { PartnerCache } from "../state/partner-cache.ts";
import type { Reporter } from "./events.ts";

export interface ReconcileContext {
  readonly repository: Repository;
  readonly state: StateFolder;
  readonly cache: PartnerCache;
  readonly planes: PlaneRuntimes;
  /** The programs that this organisation runs: about any other, nothing is known. */
  readonly parts: readonly Part[];
  readonly clock: Clock;
  readonly reporter: Reporter;
  /** Which commits must be signed, and by whom; absent: any commit is accepted. */
  readonly signing?: SigningPolicy | undefined;
}

/** What the service that follows the branch holds as long as it runs: one service a state folder. */
export const SERVICE_LOCK = "service";

/** UTC, ISO 8601 with milliseconds. */
export function timestamp(ms: number): string {
  return new Date(ms).toISOString();
}

export interface OpenOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly reporter: Reporter;
  /** Stands in for the real parts; those of the configuration when absent. */
  readonly planes?: PlaneRuntimes;
}

export interface Federation extends ReconcileContext {
  readonly author: CommitAuthor;
  readonly signingKeyFile: string | undefined;
}

/**
 * Opens without changing anything but making the state folder.
 * @throws DrawbridgeError `repository_unusable`, `config_unreadable`, `secret_unavailable`
 */
export async function openFederation(config: FederationConfig, options: OpenOptions): Promise<Federation> {
  const { clock, random, reporter } = options;
  const { repository, directory } = config;
  const below = (path: string | undefined) => (path === undefined ? undefined : resolve(directory, path));
  const allowedSignersFile = below(repository.allowedSignersFile);
  const state = StateFolder.open(resolve(directory, config.state), random);
  return {
    repository: await Repository.open(resolve(directory, repository.path), repository.branch),
    state,
    cache: new PartnerCache(state),
    planes: options.planes ?? planeRuntimes(config, { clock }),
    parts: [
      "homeserver",
      ...(config.card === undefined ? [] : (["bridge"] as const)),
      ...(config.gateway === undefined ? [] : (["gateway"] as const)),
    ],
    clock,
    reporter,
    signing:
      allowedSignersFile === undefined
        ? undefined
        : {
            allowedSignersFile,
            signedCommits: repository.signedCommits,
            trustedBase: parseRevision(repository.trustedBase),
          },
    author: repository.author,
    signingKeyFile: below(repository.signingKeyFile),
  };
}
