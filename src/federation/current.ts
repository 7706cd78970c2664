// What the organisation's repository says now: for commands that look at one partner.
import { resolve } from "node:path";
import type { Random } from "../domain/clock.ts";
import type { FederationConfig } from "./config.ts";
import { type DesiredState, desiredState, readRevision, registryOf } from "./reconcile/desired.ts";
import { Repository } from "./repository/repository.ts";
import { StateFolder } from "./state/folder.ts";
import { PartnerCache } from "./state/partner-cache.ts";

export interface CurrentState {
  readonly repository: Repository;
  readonly desired: DesiredState;
}

/** @throws DrawbridgeError `repository_unusable`; RegistryError */
export async function currentState(config: FederationConfig, random: Random): Promise<CurrentState> {
  const { path, branch } = config.repository;
  const repository = await Repository.open(resolve(config.directory, path), branch);
  const revision = await repository.requireHead();
  const cache = new PartnerCache(StateFolder.open(resolve(config.directory, config.state), random));
  const files = await readRevision(repository, revision, cache);
  return { repository, desired: desiredState(revision, files, registryOf(files, cache)) };
}
