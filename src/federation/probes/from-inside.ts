// What the operator's own parts say of a partner, by the planes' runtimes.
// Invariant: a plane that cannot be probed is reported as unknown, and the others are still probed.
import type { Clock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { type EvidenceItem, operatorItem } from "../../records/format/evidence-item.ts";
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
  covering: readonly string[] = [],
): Promise<EvidenceItem[]> {
  const items: EvidenceItem[] = [];
  for (const plane of planes) {
    try {
      items.push(...(await runtimes[plane].probe(desiredPlane(desired, plane), partner, covering)));
    } catch (error) {
      if (!(error instanceof DrawbridgeError)) throw error;
      const about = { plane, partner: partner.partner.serverName, probe: "plane", layer: "none" } as const;
      items.push(operatorItem(clock.now(), { ...about, verdict: "unknown", reason: error.code }));
    }
  }
  return items;
}
