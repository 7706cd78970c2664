// What the organisation's repository says now: for commands that look at one partner.
import type { ReconcileContext } from "./reconcile/context.ts";
import { type DesiredState, desiredState, readRevision, registryOf } from "./reconcile/desired.ts";
import type { Repository } from "./repository/repository.ts";

export interface CurrentState {
  readonly repository: Repository;
  readonly desired: DesiredState;
}

/** @throws DrawbridgeError `repository_unusable`; RegistryError */
export async function currentState({
  repository,
  cache,
}: Pick<ReconcileContext, "repository" | "cache">): Promise<CurrentState> {
  const revision = await repository.requireHead();
  const files = await readRevision(repository, revision, cache);
  return { repository, desired: desiredState(revision, files, registryOf(files, cache)) };
}
