// What is in force, plane by plane, whom it contains, what drifted and what waits: from the records alone,
// without asking a real part.
import { PLANE_NAMES, PLANE_NUMBERS, type PlaneName } from "../plane-order.ts";
import type { OutOfReach } from "../planes/plane.ts";
import { assessBranch } from "../reconcile/accept-head.ts";
import type { ReconcileContext } from "../reconcile/context.ts";
import { readRevision, registryOf } from "../reconcile/desired-state.ts";
import {
  closedPlanes,
  isRemoved,
  type Partner,
  type PartnerEntry,
  type Registry,
} from "../registry/partner.ts";
import type { Revision } from "../repository/repository.ts";
import { type DriftRecord, recentDrift } from "../state/drift-records.ts";
import { emptyRecord, type RefusalReason, readHead, readPlane } from "../state/plane-records.ts";

const DRIFT_SHOWN = 20;

export interface PlaneStatus {
  readonly plane: PlaneName;
  readonly number: number;
  readonly revision: string | null;
  readonly digest: string | null;
  /** Since when it is in force; else when the last attempt ended, or this one began. */
  readonly at: string | null;
  /** When a plane that had been in force was last so again, something having been put right; null when never. */
  readonly repairedAt: string | null;
  /** `in_force`, `incomplete`, `deferred`, `failed`; `applying` when it was begun; `never`; `unmanaged`. */
  readonly outcome: string;
  readonly reason: string | null;
  readonly retryAt: string | null;
  readonly outOfReach: readonly OutOfReach[];
  /** Differences that the last drift check found; null when there was none, or it could not be made. */
  readonly drift: number | null;
  readonly lookedAt: string | null;
}

export interface FederationStatus {
  /** What the branch points at. */
  readonly head: string | null;
  /** What the planes are brought to. */
  readonly accepted: string | null;
  readonly refused: { readonly reason: RefusalReason; readonly detail: string; readonly hint: string } | null;
  readonly contained: readonly {
    readonly name: string;
    readonly serverName: string;
    readonly closed: readonly PlaneName[];
  }[];
  /** Every plane is declared closed, by a removal. */
  readonly removed: readonly { readonly name: string; readonly serverName: string }[];
  readonly planes: readonly PlaneStatus[];
  /** The newest differences that were found and put right, newest first. */
  readonly drift: readonly DriftRecord[];
}

export async function federationStatus(context: ReconcileContext): Promise<FederationStatus> {
  const { repository, state } = context;
  const head = await repository.head();
  const accepted = readHead(state).accepted?.revision;
  const assessment = head === undefined ? undefined : (await assessBranch(context)).assessment;
  const registry = assessment?.good
    ? assessment.desired.registry
    : accepted === undefined
      ? undefined
      : await storedRegistry(context, accepted);
  const refused =
    assessment === undefined
      ? {
          reason: "branch_missing" as const,
          detail: `there is no branch ${repository.branch}`,
          hint: "Push the branch, or correct `repository.branch`.",
        }
      : assessment.good
        ? null
        : { reason: assessment.reason, detail: assessment.detail, hint: assessment.hint };
  return {
    head: head ?? null,
    accepted: accepted ?? null,
    refused,
    contained: partnersIn(registry, ({ contained }) => contained).map(({ name, partner }) => ({
      ...{ name, serverName: partner.serverName, closed: closedPlanes(partner) },
    })),
    removed: partnersIn(registry, isRemoved).map(({ name, partner }) => ({
      ...{ name, serverName: partner.serverName },
    })),
    planes: PLANE_NAMES.map((plane) => planeStatus(context, plane)),
    drift: recentDrift(state, DRIFT_SHOWN),
  };
}

async function storedRegistry(
  { repository, cache }: ReconcileContext,
  revision: Revision,
): Promise<Registry | undefined> {
  try {
    return registryOf(await readRevision(repository, revision, cache), cache);
  } catch {
    return undefined;
  }
}

function partnersIn(
  registry: Registry | undefined,
  isWanted: (partner: Partner) => boolean,
): readonly PartnerEntry[] {
  return (registry?.partners ?? []).filter(({ partner }) => isWanted(partner));
}

function planeStatus({ state, planes }: ReconcileContext, plane: PlaneName): PlaneStatus {
  const { unmanaged } = planes[plane];
  const { applying, applied, inForce, driftCheck } = unmanaged ? emptyRecord(plane) : readPlane(state, plane);
  const isInForce = applying === null && applied?.outcome === "in_force";
  const mark = isInForce ? inForce : (applying ?? applied);
  return {
    plane,
    number: PLANE_NUMBERS[plane],
    revision: mark?.revision ?? null,
    digest: mark?.digest ?? null,
    at: mark?.at ?? null,
    repairedAt: isInForce ? (inForce?.repairedAt ?? null) : null,
    outcome: applying !== null ? "applying" : (applied?.outcome ?? (unmanaged ? "unmanaged" : "never")),
    reason: applied?.reason ?? null,
    retryAt: applied?.retryAt ?? null,
    outOfReach: applied?.outOfReach ?? [],
    drift: driftCheck?.differences ?? null,
    lookedAt: driftCheck?.at ?? null,
  };
}
