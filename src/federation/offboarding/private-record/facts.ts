// What a signed statement holds of the private record; everything else in it stays private.
import type { RecordFacts } from "../run/context.ts";
import { requireRecord } from "./file.ts";
import { RecordError } from "./problems.ts";
import type { PrivateRecord } from "./schema.ts";

/** The record of a run, which must still be about the removal that the run was opened as. */
export function recordOfRun(run: {
  readonly privateRecordFile: string;
  readonly run: string;
  readonly kind: string;
  readonly trigger: string;
  readonly remover: string;
  readonly partner: string;
  readonly self: string;
}): PrivateRecord {
  const record = requireRecord(run.privateRecordFile);
  const other = run.self === run.remover ? run.partner : run.remover;
  const wanted = [
    ["partner.serverName", record.partner.serverName, other],
    ["revocation.kind", record.revocation.kind, run.kind],
    ["revocation.trigger", record.revocation.trigger, run.trigger],
    // A record that was written before the run's ID was is as good.
    ["run", record.run ?? run.run, run.run],
  ] as const;
  const changed = wanted.filter(([, found, opened]) => found !== opened);
  if (changed.length === 0) return record;
  throw new RecordError(
    run.privateRecordFile,
    changed.map(([field]) => ({
      ...{ rule: "record.classified", field, line: 0, message: "is not what the run was opened with" },
      hint: "Put it back as it was, or abort the run (drawbridge offboarding abort) and open another.",
    })),
  );
}

/**
 * @throws RecordError when the record is refused, incomplete, or about another removal; DrawbridgeError
 *   `config_unreadable`
 */
export function recordFacts(run: Parameters<typeof recordOfRun>[0]): RecordFacts {
  const { affected, attestation, change, duties, readmission } = recordOfRun(run);
  const { retention, backups } = duties;
  return {
    owner: attestation.own,
    references: { change: change.reference, rollback: change.rollback },
    retention: { state: retention.state, until: retention.until ?? null },
    backupsExpireBy: backups.expireBy,
    purgeWaiver: duties.purge.waiver ?? null,
    readmission: {
      possible: readmission.possible,
      owner: readmission.owner ?? null,
      conditions: readmission.conditions,
    },
    agents: affected.agents,
  };
}
