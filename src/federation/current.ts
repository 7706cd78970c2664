// What the organisation's repository says now: for commands that look at one partner.
import { DrawbridgeError } from "../domain/errors.ts";
import { assess, type Refusal } from "./reconcile/assess.ts";
import type { ReconcileContext } from "./reconcile/context.ts";
import { type DesiredState, desiredState, readRevision, registryOf } from "./reconcile/desired.ts";
import type { Repository } from "./repository/repository.ts";
import { readHead } from "./state/records.ts";

/** The state by which real parts are judged, and why that is not the head's. */
export interface StateTakenUp extends CurrentState {
  readonly refusal: Refusal | undefined;
}

/**
 * The head's state if it may be taken up, else that of the last good revision: what is probed is judged
 * by what the reconciler has brought about, or is about to; never by what it refuses.
 * @throws DrawbridgeError `head_refused` when nothing was ever taken up; `repository_unusable`
 */
export async function stateTakenUp(context: ReconcileContext): Promise<StateTakenUp> {
  const { repository, cache, state, allowedSignersFile } = context;
  const head = await repository.requireHead();
  const accepted = readHead(state).accepted?.revision;
  const found = await assess(head, { repository, cache, accepted, allowedSignersFile, allowRewind: false });
  if (found.good) return { repository, desired: found.desired, refusal: undefined };
  const { reason, detail, hint } = found;
  if (accepted === undefined) throw new DrawbridgeError("head_refused", detail, { hint });
  const files = await readRevision(repository, accepted, cache);
  const desired = desiredState(accepted, files, registryOf(files, cache));
  return { repository, desired, refusal: { reason, detail, hint } };
}

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
