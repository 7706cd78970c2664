// A deployment's repository, state and planes, opened for a command or for the service.
import { resolve } from "node:path";
import type { Clock, Random } from "../../domain/clock.ts";
import type { FederationConfig } from "../config.ts";
import { type PlaneRuntimes, planeRuntimes } from "../planes/runtimes.ts";
import type { CommitAuthor } from "../repository/commit.ts";
import { Repository } from "../repository/repository.ts";
import { StateFolder } from "../state/folder.ts";
import { PartnerCache } from "../state/partner-cache.ts";
import type { ReconcileContext } from "./context.ts";
import type { Reporter } from "./events.ts";

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
  const state = StateFolder.open(resolve(directory, config.state), random);
  return {
    repository: await Repository.open(resolve(directory, repository.path), repository.branch),
    state,
    cache: new PartnerCache(state),
    planes: options.planes ?? planeRuntimes(config, { clock }),
    clock,
    reporter,
    allowedSignersFile: below(repository.allowedSignersFile),
    author: repository.author,
    signingKeyFile: below(repository.signingKeyFile),
  };
}
