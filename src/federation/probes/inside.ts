// What the operator's own parts say of a partner, by the planes' runtimes.
// Invariant: a plane that cannot be probed is reported as unknown, and the others are still probed.
import type { Clock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { type EvidenceItem, evidenceItem } from "../../records/format/evidence-item.ts";
import type { PlaneName } from "../plane-order.ts";
import type { PlaneRuntimes } from "../planes/runtimes.ts";
import { type DesiredState, desiredPlane } from "../reconcile/desired-state.ts";
import type { PartnerEntry } from "../registry/partner.ts";

export async function probeFromInside(
  runtimes: PlaneRuntimes,
  desired: DesiredState,
  partner: PartnerEntry,
  planes: readonly PlaneName[],
  clock: Clock,
): Promise<EvidenceItem[]> {
  const items: EvidenceItem[] = [];
  for (const plane of planes) {
    try {
      items.push(...(await runtimes[plane].probe(desiredPlane(desired, plane), partner)));
    } catch (error) {
      if (!(error instanceof DrawbridgeError)) throw error;
      items.push(failed(plane, partner, error, clock));
    }
  }
  return items;
}

function failed(
  plane: PlaneName,
  { partner }: PartnerEntry,
  error: DrawbridgeError,
  clock: Clock,
): EvidenceItem {
  return evidenceItem({
    schema: "svc.federation.evidence_item.v1",
    plane,
    partner: partner.serverName,
    probe: "plane",
    vantage: "operator",
    subject: null,
    verdict: "unknown",
    layer: "none",
    status: null,
    reason: error.code,
    references: [],
    at: new Date(clock.now()).toISOString(),
    duration_ms: null,
  });
}
