// The evidence of one real removal: what the probes of the lab's two organisations found in each stage, with no content
// and no key in it (tests/fixtures/records/removal-evidence.json).
import { readFileSync } from "node:fs";
import type { Circumstances, Condition } from "../../src/records/conditions/condition.ts";
import { conditionsOf, DUTIES } from "../../src/records/conditions/conditions-of-planes.ts";
import type { EvidenceItem } from "../../src/records/format/evidence-item.ts";
import type { Scope } from "../../src/records/format/fields.ts";
import type { OutOfReachEntry } from "../../src/records/format/predicates.ts";
import { PLANE_OF_STAGE, type StageName } from "../../src/records/format/stages.ts";

export interface RealStage {
  readonly opened_at: string;
  readonly closed_at: string;
  readonly revision: string | null;
  readonly render: string | null;
  readonly scope: Scope;
  readonly out_of_reach: readonly Pick<OutOfReachEntry, "subject" | "reason">[];
  readonly attested: readonly string[];
  readonly items: readonly EvidenceItem[];
}

type Side = Readonly<Record<StageName, RealStage>>;
export interface RealRemoval {
  readonly remover: string;
  readonly partner: string;
  readonly at_remover: Side;
  readonly at_partner: Side;
}

export const REAL: RealRemoval = JSON.parse(
  readFileSync(new URL("../fixtures/records/removal-evidence.json", import.meta.url), "utf8"),
);

export function conditionsOfStage(stage: StageName): readonly Condition[] {
  const plane = PLANE_OF_STAGE[stage];
  return plane === null ? DUTIES : conditionsOf(plane, "closed");
}

/** In what a stage of the remover's, or of the partner's, was observed. */
export function circumstancesOf(
  side: "at_remover" | "at_partner",
  stage: StageName,
  change: Partial<Circumstances> = {},
): Circumstances {
  const { remover, partner } = REAL;
  const { scope, opened_at, closed_at, revision, render, out_of_reach } = REAL[side][stage];
  const [organisation, other] = side === "at_remover" ? [remover, partner] : [partner, remover];
  return {
    ...{ organisation, partner: other, plane: PLANE_OF_STAGE[stage], scope },
    ...{ from: opened_at, until: closed_at, revision, render },
    outOfReach: new Set(out_of_reach.map(({ subject }) => subject)),
    ...change,
  };
}

/** A scope with nothing in it but the homeserver. */
export const NO_SCOPE: Scope = {
  ...{ parts: ["homeserver"], client: "client", applicants: [], agents: [], pins: [] },
  ...{ rooms: null, policy: null, started_at: null },
};
