// What a removal is worked on with (the deployment, the keys that it signs with, what only people can say), one step of a
// run at a time; and what keeps a step from being done: what was tried, what was found and what to do. Invariants: a run that
// has ended is not worked on; of its private record a statement holds what `recordFacts` gives, and everything else stays private.
import { resolve } from "node:path";
import { DrawbridgeError } from "../../../domain/errors.ts";
import { isSettled } from "../../../records/conditions/evaluate.ts";
import { readPublicKey } from "../../../records/format/ecdsa-p256.ts";
import { PLANE_OF_STAGE, type StageName } from "../../../records/format/removal-stages.ts";
import type { CompletionPredicate } from "../../../records/format/statements.ts";
import { loadTrust, type Trust } from "../../../records/format/trust.ts";
import type { OwnRemoval } from "../../../records/sign/export-and-import.ts";
import { commandSigner, fileSigner, type Signer } from "../../../records/sign/signer.ts";
import { readInput } from "../../../runtime/read-input.ts";
import type { FederationConfig } from "../../config.ts";
import type { Federation } from "../../reconcile/context.ts";
import { stateAt } from "../../reconcile/desired-state.ts";
import type { Revision } from "../../repository/repository.ts";
import type { ObserveFromOutside } from "../../workflow/observe-plane.ts";
import type { Block } from "../../workflow/procedures.ts";
import type { JudgedCondition } from "../../workflow/run-step.ts";
import { RecordError } from "../private-record/check.ts";
import { requireRecord } from "../private-record/file.ts";
import type { PrivateRecord } from "../private-record/schema.ts";
import { counterpartyIn, findRun, type OutOfReach, type Run, type RunFile } from "./run-file.ts";

export type Residual = CompletionPredicate["residual"];

export interface OffboardingContext extends Federation {
  /** @throws DrawbridgeError `config_invalid` when the private record is incomplete */
  readonly facts: (run: Run) => RecordFacts;
  readonly residual: (run: Run) => Promise<Residual>;
  readonly outside: ObserveFromOutside | undefined;
  readonly say: (text: string) => void;
}

export type RunContext = OffboardingContext & { readonly run: Run; readonly trust: Trust };
type RunStep<T> = (context: RunContext) => Promise<T>;

/** @throws DrawbridgeError `config_invalid`, `secret_unavailable` */
export function signerOf(config: FederationConfig): Signer {
  const { signingKey } = sectionOf(config);
  if ("file" in signingKey) return fileSigner(resolve(config.directory, signingKey.file));
  const path = resolve(config.directory, signingKey.publicKeyFile);
  const pem = readInput(path, "Correct `offboarding.signingKey.publicKeyFile`.", "secret_unavailable");
  return commandSigner(signingKey.command, readPublicKey(pem.toString("utf8"), path));
}

/** Both parties' keys, as they are pinned. @throws DrawbridgeError `config_invalid`, `config_unreadable` */
export const trustOf = (config: FederationConfig): Trust =>
  loadTrust(resolve(config.directory, sectionOf(config).trustFile));

function sectionOf(config: FederationConfig): NonNullable<FederationConfig["offboarding"]> {
  if (config.offboarding !== undefined) return config.offboarding;
  const hint =
    "Add `offboarding: {signingKey: {file: …}, trustFile: …}`; drawbridge records keygen makes the key.";
  throw new DrawbridgeError("config_invalid", `${config.file} has no section \`offboarding\``, { hint });
}

export type StageBlock = Block & { readonly stage: StageName | null };

export class OffboardingBlocked extends DrawbridgeError {
  readonly blocks: readonly StageBlock[];

  constructor(what: string, blocks: readonly StageBlock[]) {
    const lines = blocks.map(({ stage, plane, condition, probe, found }) => {
      const where = [stage, plane === null ? undefined : `plane ${plane}`].filter(Boolean).join(", ");
      return `  ${where === "" ? "" : `${where}: `}${condition} [${probe}]: ${found}`;
    });
    super("offboarding_blocked", [what, ...lines].join("\n"), { hint: blocks[0]?.hint ?? "" });
    this.name = "OffboardingBlocked";
    this.blocks = blocks;
  }
}

export const blockedBy = (what: string, block: Omit<StageBlock, "stage" | "plane"> & Partial<StageBlock>) =>
  new OffboardingBlocked(what, [{ stage: null, plane: null, ...block }]);

export function blocksIn(stage: StageName, conditions: readonly JudgedCondition[], outOfReach: OutOfReach) {
  const about = { stage, plane: PLANE_OF_STAGE[stage] };
  const left = { ...about, condition: "out_of_reach" };
  const open = conditions.filter((one) => !isSettled(one));
  return [
    ...open.map(({ condition, probe, found, hint }) => ({ ...about, condition, probe, found, hint })),
    ...outOfReach.map(({ subject: probe, reason: found, hint }) => ({ ...left, probe, found, hint })),
  ];
}

type RecordedRun = Omit<RunFile, "version" | "opened_at" | "baseline" | "contained_at" | "waivers" | "ended">;

/** The record of a run. @throws RecordError, also when it is about another removal by now; as `requireRecord` does */
export function recordOfRun(run: RecordedRun): PrivateRecord {
  const record = requireRecord(run.private_record_file);
  const wanted = [
    ["partner.serverName", record.partner.serverName, counterpartyIn(run)],
    ["revocation.kind", record.revocation.kind, run.kind],
    ["revocation.trigger", record.revocation.trigger, run.trigger],
    // A record that was written before the run's ID was is as good.
    ["run", record.run ?? run.run, run.run],
  ] as const;
  const changed = wanted.filter(([, found, opened]) => found !== opened);
  const problems = changed.map(([field]) => ({
    ...{ rule: "record.classified", field, line: 0, message: "is not what the run was opened with" },
    hint: "Put it back as it was, or abort the run (drawbridge offboarding abort) and open another.",
  }));
  if (problems.length > 0) throw new RecordError(run.private_record_file, problems);
  return record;
}

export type RecordFacts = Readonly<ReturnType<typeof recordFacts>>;

/** @throws as `recordOfRun` */
export function recordFacts(run: RecordedRun) {
  const { affected, attestation, change, duties, readmission } = recordOfRun(run);
  const { retention, backups } = duties;
  return {
    owner: attestation.own,
    references: { change: change.reference, rollback: change.rollback },
    retention: { state: retention.state, until: retention.until ?? null },
    backupsExpireBy: backups.expireBy,
    purgeWaiver: duties.purge.waiver ?? null,
    readmission: { ...readmission, owner: readmission.owner ?? null },
    agents: affected.agents as readonly string[],
  };
}

/** A run as the records see it. @throws DrawbridgeError `config_invalid` when a party has no pinned key */
export function removalOf({ run, trust: { parties } }: RunContext): OwnRemoval {
  for (const name of [run.self, counterpartyIn(run)]) {
    if (parties.some(({ organisation }) => organisation === name)) continue;
    const hint = "Add its public key to offboarding.trustFile, received by another way than the statements.";
    throw new DrawbridgeError("config_invalid", `the trust file has no key of ${name}`, { hint });
  }
  return { ...run, parties };
}

/** What helps where the branch, or the repository, does not hold the revision that a run was opened at. */
export const BASELINE_HINT =
  "Bring that commit and the branch that held it back from a clone (git fetch). Or end the run (drawbridge offboarding abort) and open another: it covers and retires what the partner's entry names then, and nothing that was taken out of it before.";

/** The registry as it was when the run was opened. @throws as `stateAt` */
export async function registryBefore(federation: Federation, { baseline: { revision } }: Run) {
  try {
    return (await stateAt(federation, revision as Revision)).registry;
  } catch (cause) {
    if (!(cause instanceof DrawbridgeError) || cause.code !== "repository_unusable") throw cause;
    const what = `the run was opened at ${revision}, whose registry cannot be read: ${cause.message}`;
    throw new DrawbridgeError("repository_unusable", what, { hint: BASELINE_HINT, cause });
  }
}

/** Does one step of the run that is named, as by `findRun`, while no other process does. */
export async function withRun<T>(context: OffboardingContext, named: string | undefined, step: RunStep<T>) {
  const { state, clock } = context;
  const { run: id } = findRun(state, named);
  // The run may have ended while this step waited.
  const work = async () => step({ ...context, run: findRun(state, id), trust: trustOf(context.config) });
  const onWait = () => context.say("waiting for another step of this run to end");
  return state.locked(`offboarding ${id}`, clock, work, onWait);
}

/** @throws DrawbridgeError `usage` when the run was aborted, or has ended */
export function requireOpen(run: Run): void {
  if (run.ended === null) return;
  const hint =
    "Nothing is left to do in it. To open another run by the same private record, take `run` out of that.";
  throw new DrawbridgeError("usage", `run ${run.run} was ${run.ended.how} at ${run.ended.at}`, { hint });
}
