// What was observed of one stage, and how it is judged: by the evaluation that the record will be verified by; and the
// observation of the data duties: what was purged, what the private record says, and the tests that need no server.

import { DrawbridgeError } from "../../../domain/errors.ts";
import { evaluateStage, type StageWork } from "../../../records/conditions/evaluate-stage.ts";
import type { EvidenceItem } from "../../../records/format/evidence-item.ts";
import type { OutOfReach } from "../../planes/plane.ts";
import { goodState } from "../../reconcile/accept-head.ts";
import { READMISSIONS } from "../../registry/readmission-record.ts";
import { checkRepository } from "../../work-tree/check.ts";
import { DeclaredEvidence } from "../../workflow/declared-evidence.ts";
import { HINTS } from "../../workflow/hints.ts";
import {
  type JudgedCondition,
  judgeConditions,
  type Objection,
  objectTo,
  type Seen,
} from "../../workflow/step-verdict.ts";
import type { RecordFacts } from "../private-record/consistency.ts";
import type { RunContext } from "../run/context.ts";
import { readDutiesEvidence } from "../run/progress.ts";
import { counterpartyIn } from "../run/run-file.ts";

export interface StageObservation extends Seen {
  /** What the conditions are evaluated with; `closed_at` is when the observation ended. */
  readonly work: StageWork;
  /** By room ID or server name; or by an item's subject, or its probe. */
  readonly outOfReach: readonly Omit<OutOfReach, "partner">[];
  readonly objections: readonly Objection[];
}

/** Why a room of a third party is out of reach: this organisation may not close it. */
export const NOT_OUR_ROOM = "not_our_room";

export function judgeObservation(observation: StageObservation): readonly JudgedCondition[] {
  const { work, items, objections } = observation;
  return objectTo(judgeConditions(evaluateStage(work, items), observation), objections);
}

/** Probe of the tests that need no server. */
const STATIC_TESTS = "check_federation";
/** Probe of the private record's duties. */
const DUTIES = "duties";

export async function observeDuties(
  context: RunContext,
): Promise<Pick<StageObservation, "items" | "outOfReach" | "objections">> {
  const { desired, repository } = await goodState(context);
  const { revision } = desired;
  const declared = new DeclaredEvidence(counterpartyIn(context.run), "transport", context.clock);
  const objections: Objection[] = [];
  const items = [...readDutiesEvidence(context.run)];
  const registry = await repository.read(revision, ["registry"]);
  const rendered = await repository.read(revision, ["rendered", "kubernetes"]);
  const readmissions = await repository.read(revision, [READMISSIONS]);
  const failed = checkRepository(registry, rendered, readmissions).find(({ result }) => result !== "ok");
  if (failed === undefined) {
    const about = { layer: "registry", verdict: "closed", reason: "passed" } as const;
    items.push(declared.item({ probe: STATIC_TESTS, ...about, references: [revision] }));
  } else {
    const found = `${failed.name}: ${failed.found[0] ?? "failed"}`;
    const hint = HINTS["static_tests_pass"] ?? "";
    objections.push({ condition: "static_tests_pass", probe: STATIC_TESTS, found, hint });
  }
  try {
    items.push(...recorded(context.facts(context.run), declared));
  } catch (error) {
    if (!(error instanceof DrawbridgeError)) throw error;
    const found = error.message.split("\n")[0] ?? "";
    objections.push({ condition: "duties_recorded", probe: DUTIES, found, hint: error.hint ?? "" });
  }
  const unclear = items.filter(({ verdict }) => verdict === "unknown");
  const outOfReach = unclear.map(({ subject, probe, reason }) => ({
    subject: subject ?? probe,
    reason: reason ?? "unknown",
    hint: "Delete it by hand, or waive it by name.",
  }));
  return { items, outOfReach, objections };
}

/** What the private record says of the duties. */
function recorded(
  { retention, backupsExpireBy, purgeWaiver }: RecordFacts,
  declared: DeclaredEvidence,
): readonly EvidenceItem[] {
  const about = { layer: "private_record", verdict: "closed" } as const;
  const references = [
    `retention=${retention.state}${retention.until === null ? "" : `:${retention.until}`}`,
    `backups_expire_by=${backupsExpireBy}`,
    "replicated_history=not_retracted",
  ];
  const duties = declared.item({ probe: DUTIES, ...about, reason: "recorded", references });
  if (purgeWaiver === null) return [duties];
  return [duties, declared.item({ probe: "purge_waived", ...about, reason: purgeWaiver })];
}
