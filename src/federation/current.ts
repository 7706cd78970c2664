// What the organisation's repository says now: for commands that look at one partner.
import { resolve } from "node:path";
import type { Random } from "../domain/clock.ts";
import { DrawbridgeError } from "../domain/errors.ts";
import type { FederationConfig } from "./config.ts";
import { type DesiredState, desiredState, readRevision, registryOf } from "./reconcile/desired.ts";
import type { PartnerEntry, Registry } from "./registry/partner.ts";
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

/**
 * The partner that a file's name (`org-b`) or a server name stands for.
 * @throws DrawbridgeError `usage` when there is none, or it is the organisation itself
 */
export function requirePartner(registry: Registry, named: string): PartnerEntry {
  const found = registry.partners.find(({ name, partner }) => name === named || partner.serverName === named);
  if (found !== undefined) return found;
  const isOwn = named === registry.organisation.serverName;
  const known = registry.partners.map(({ name }) => name);
  throw new DrawbridgeError(
    "usage",
    isOwn ? `${named} is this organisation itself` : `the registry has no partner ${JSON.stringify(named)}`,
    { mend: `Name one of registry/partners: ${known.slice(0, 20).join(", ") || "there is none yet"}.` },
  );
}
