// What is in force, plane by plane, whom it contains, what drifted and what waits: from the records alone,
// without asking a real part.
import { PLANE_NAMES, PLANE_NUMBERS, type PlaneName } from "../plane-order.ts";
import { assess } from "../reconcile/accept-head.ts";
import type { Federation } from "../reconcile/context.ts";
import { stateAt } from "../reconcile/desired-state.ts";
import { closedPlanes, isRemoved } from "../registry/partner.ts";
import { emptyRecord, readHead, readPlane, recentDrift } from "../state/plane-records.ts";

const DRIFT_SHOWN = 20;
export type FederationStatus = Awaited<ReturnType<typeof federationStatus>>;

export async function federationStatus(context: Federation) {
  const { repository, state } = context;
  const head = await repository.head();
  const accepted = readHead(state).accepted?.revision;
  const assessment = await assess(head, context);
  const stored = accepted && (await stateAt(context, accepted).catch(() => undefined));
  const partners = (assessment.good ? assessment.desired : stored)?.registry.partners ?? [];
  const contained = partners.filter(({ partner }) => partner.contained);
  const removed = partners.filter(({ partner }) => isRemoved(partner));
  return {
    head: head ?? null,
    accepted: accepted ?? null,
    refused: assessment.good ? null : assessment.refusal,
    contained: contained.map(({ name, partner }) => {
      return { name, serverName: partner.serverName, declaredClosed: closedPlanes(partner) };
    }),
    removed: removed.map(({ name, partner: { serverName } }) => ({ name, serverName })),
    planes: PLANE_NAMES.map((plane) => planeStatus(context, plane)),
    drift: recentDrift(state, DRIFT_SHOWN),
  };
}

function planeStatus({ state, planes }: Federation, plane: PlaneName) {
  const { unmanaged } = planes[plane];
  const { applying, applied, inForce, driftCheck } = unmanaged ? emptyRecord(plane) : readPlane(state, plane);
  const isInForce = applying === null && applied?.outcome === "in_force";
  const mark = isInForce ? inForce : (applying ?? applied);
  return {
    plane,
    number: PLANE_NUMBERS[plane],
    revision: mark?.revision ?? null,
    digest: mark?.digest ?? null,
    /** Since when it is in force; else when the last attempt ended, or this one began. */
    at: mark?.at ?? null,
    /** When a plane that had been in force was last so again, something having been put right; null when never. */
    repairedAt: isInForce ? (inForce?.repairedAt ?? null) : null,
    /** `in_force`, `incomplete`, `deferred`, `failed`; `applying` when it was begun; `never`; `unmanaged`. */
    outcome: applying !== null ? "applying" : (applied?.outcome ?? (unmanaged ? "unmanaged" : "never")),
    reason: applied?.reason ?? null,
    retryAt: applied?.retryAt ?? null,
    outOfReach: applied?.outOfReach ?? [],
    drift: driftCheck?.differences ?? null,
    checkedAt: driftCheck?.succeededAt ?? null,
  };
}
