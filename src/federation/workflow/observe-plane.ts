// What a step observes of a plane, and how the table of conditions judges it. Containment, restore and re-admission judge
// by it as it stands; a removal observes by it, and judges by its stage's statement.
// Invariant: everything that a condition may rest on is a sealed item, without content.
import type { Direction } from "../../records/conditions/condition.ts";
import { conditionsOf, fromInside } from "../../records/conditions/conditions-of-planes.ts";
import { evaluate } from "../../records/conditions/evaluate.ts";
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import type { Scope } from "../../records/format/fields.ts";
import { targetFingerprint } from "../../rendered-files/agents-file.ts";
import type { PlaneName } from "../plane-order.ts";
import { isPublicForOthers } from "../probes/finding.ts";
import { probeFromInside } from "../probes/from-inside.ts";
import type { ReconcileContext } from "../reconcile/context.ts";
import { findPartner, type Partner, type PartnerEntry, planeState } from "../registry/partner.ts";
import { DeclaredEvidence } from "./declared-evidence.ts";
import type { Reached } from "./run-step.ts";
import { type JudgedCondition, judgeConditions } from "./step-verdict.ts";

/** Tries the planes of this organisation, `own`, as the partner. */
export type ObserveFromOutside = (
  own: string,
  partner: PartnerEntry,
  planes: readonly PlaneName[],
  inside: readonly EvidenceItem[],
) => Promise<readonly EvidenceItem[]>;

/** What is asked about a plane. */
export interface PlaneQuestion {
  readonly plane: PlaneName;
  readonly direction: Direction;
  readonly scope: Scope;
  readonly outside?: ObserveFromOutside | undefined;
  /** The partner's entry as it was when its scope was determined; absent where that is the one that was reached. */
  readonly before?: Pick<Partner, "gateway" | "card"> | undefined;
  /** Items that show the use of an agent to be refused whose card stays public for others. */
  readonly refusals?: (agent: string) => readonly EvidenceItem[];
}

export interface Observed {
  readonly items: readonly EvidenceItem[];
  /** Those of them that were tried as the partner. */
  readonly tried: readonly EvidenceItem[];
}

/** What the organisation states itself, what its parts say, and what was tried as the partner. */
export async function observePlane(
  { planes, clock }: Pick<ReconcileContext, "planes" | "clock">,
  { desired, partner: named, applied }: Reached,
  { plane, direction, scope, outside, before, refusals = () => [] }: PlaneQuestion,
): Promise<Observed> {
  const entry = findPartner(desired.registry, named);
  const { partner } = entry;
  const declared = new DeclaredEvidence(partner.serverName, plane, clock);
  const covering = { rooms: scope.rooms ?? [], gateway: scope.applicants } as Partial<
    Record<PlaneName, string[]>
  >;
  const inside = await probeFromInside(planes, desired, entry, [plane], clock, covering[plane] ?? []);
  const tried = (await outside?.(desired.registry.organisation.serverName, entry, [plane], inside)) ?? [];
  const staying = inside.filter((item) => item.probe === "card_fetch" && isPublicForOthers(item));
  const agents = new Set(staying.flatMap(({ subject }) => subject ?? []));
  const own = [
    ...declared.reconciled(applied, planeState(partner, plane), desired),
    ...declared.absences(direction, scope, desired.revision, [partner, before ?? partner]),
    ...(plane === "gateway" && direction === "closed" ? declared.gateway(partner, scope, desired) : []),
    ...(direction === "closed" ? declared.cardUse(agents, refusals, desired.revision) : []),
    ...(plane === "rooms" ? declared.missingRooms(scope, inside) : []),
  ];
  return { items: [...own, ...inside, ...tried], tried };
}

/** The conditions of a plane as they are now; without a probe from outside, those that one's own parts show. */
export function judgePlane(
  { desired, partner }: Reached,
  { items }: Observed,
  { plane, direction, scope, outside }: PlaneQuestion,
): readonly JudgedCondition[] {
  const all = conditionsOf(plane, direction);
  const evaluated = evaluate(outside === undefined ? fromInside(all) : all, items, {
    ...{ organisation: desired.registry.organisation.serverName, partner },
    ...{ plane, scope, from: null, until: null },
    ...{ revision: desired.revision, render: desired.planes[plane].digest, outOfReach: new Set<string>() },
    fingerprints: fingerprintsOf(findPartner(desired.registry, partner)),
  });
  return judgeConditions(evaluated, { items, fromOutside: outside !== undefined });
}

/** Of what is pinned for each agent of the partner's that our bridge carries. */
function fingerprintsOf({ partner }: PartnerEntry): ReadonlyMap<string, string> {
  return new Map(
    Object.entries(partner.card.consumes).flatMap(([agent, { cardUrl, cardIdentity }]) =>
      cardIdentity === undefined ? [] : [[agent, targetFingerprint(agent, { cardUrl, cardIdentity })]],
    ),
  );
}
