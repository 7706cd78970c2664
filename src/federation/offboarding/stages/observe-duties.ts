// Observes the data duties (stage 6): what was purged, what the private record says, and the tests that need no server.
import { DrawbridgeError } from "../../../domain/errors.ts";
import type { EvidenceItem } from "../../../records/format/evidence-item.ts";
import { goodState } from "../../reconcile/accept-head.ts";
import type { DesiredState } from "../../reconcile/desired-state.ts";
import { checkRepository } from "../../work-tree/check.ts";
import { DeclaredEvidence } from "../../workflow/declared-evidence.ts";
import { HINTS } from "../../workflow/hints.ts";
import type { Objection } from "../../workflow/step-verdict.ts";
import type { RecordFacts } from "../private-record/consistency.ts";
import type { OffboardingContext } from "../run/context.ts";
import { readDutiesEvidence } from "../run/progress.ts";
import { counterpartyOf, type Run } from "../run/run.ts";
import type { Observation } from "./observation.ts";

/** Probe of the tests that need no server. */
const STATIC_TESTS = "check_federation";
/** Probe of the private record's duties. */
const DUTIES = "duties";

export async function observeDuties(
  context: OffboardingContext,
  run: Run,
): Promise<Pick<Observation, "items" | "outOfReach" | "objections">> {
  const { federation } = context;
  const { revision } = (await goodState(federation)).desired;
  const declared = new DeclaredEvidence(counterpartyOf(run), "transport", federation.clock);
  const objections: Objection[] = [];
  const items = [...readDutiesEvidence(run)];
  const [problem] = await staticProblemsOf(context, revision);
  if (problem === undefined) {
    const about = { layer: "registry", verdict: "closed", reason: "passed" } as const;
    items.push(declared.item({ probe: STATIC_TESTS, ...about, references: [revision] }));
  } else {
    const about = { condition: "static_tests_pass", probe: STATIC_TESTS };
    objections.push({ ...about, found: problem, hint: HINTS["static_tests_pass"] ?? "" });
  }
  try {
    items.push(...recorded(context.facts(run), declared));
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

/** What the tests that need no server find in a revision: the first line of each that does not pass. */
export async function staticProblemsOf(
  { federation }: Pick<OffboardingContext, "federation">,
  revision: DesiredState["revision"],
): Promise<readonly string[]> {
  const { repository } = federation;
  const registry = await repository.read(revision, ["registry"]);
  const rendered = await repository.read(revision, ["rendered", "kubernetes"]);
  return checkRepository(registry, rendered)
    .filter(({ result }) => result !== "ok")
    .map(({ name, found }) => `${name}: ${found[0] ?? "failed"}`);
}
