// What the operator's own parts say of a partner, by the planes' runtimes.
// Invariant: a plane that cannot be probed is reported as unknown, and the others are still probed.
import { DrawbridgeError } from "../../domain/errors.ts";
import type { Direction } from "../../records/conditions/condition.ts";
import { type EvidenceItem, operatorItem } from "../../records/format/evidence-item.ts";
import type { Part, Scope } from "../../records/format/fields.ts";
import { policyDigest } from "../../rendered-files/border-policy.ts";
import type { PlaneName } from "../plane-order.ts";
import { policyOf } from "../planes/border/render.ts";
import type { Federation } from "../reconcile/context.ts";
import { type DesiredState, desiredPlane } from "../reconcile/desired-state.ts";
import { applicantsOf, type Partner, type PartnerEntry } from "../registry/partner.ts";

export async function probeFromInside(
  { planes: runtimes, clock }: Pick<Federation, "planes" | "clock">,
  desired: DesiredState,
  partner: PartnerEntry,
  planes: readonly PlaneName[],
  covering: readonly string[] = [],
) {
  const items: EvidenceItem[] = [];
  for (const plane of planes) {
    try {
      // There may be more of them than a call has arguments.
      for (const item of await runtimes[plane].probe(desiredPlane(desired, plane), partner, covering))
        items.push(item);
    } catch (error) {
      if (!(error instanceof DrawbridgeError)) throw error;
      const about = { plane, partner: partner.partner.serverName, probe: "plane", layer: "none" } as const;
      items.push(operatorItem(clock.now(), { ...about, verdict: "unknown", reason: error.code }));
    }
  }
  return items;
}

/** What a change of a partner's planes has to cover; rooms and the homeserver's process are not known from files. */
export function scopeOf(
  parts: readonly Part[],
  { serverName, azp, gateway, card }: Partner,
  { registry }: Pick<DesiredState, "registry">,
  direction: Direction = "closed",
): Scope {
  // Without a pin an agent is never trusted, so that there is nothing of it to be opened.
  const isCovered = (agent: string) => direction === "closed" || card.consumes[agent]?.cardIdentity;
  const policy = policyOf(registry);
  return {
    parts: [...parts],
    client: azp,
    applicants: applicantsOf(registry, { serverName }).map(({ clientId }) => clientId),
    agents: gateway?.invokes ?? [],
    pins: Object.keys(card.consumes).filter(isCovered),
    rooms: null,
    policy: policy.allowed_servers.includes(serverName) ? policyDigest(policy) : null,
    started_at: null,
  };
}
