// What the registry and the run say of a private record: values for a new one, and whether it agrees with both. And
// what a signed statement holds of it; everything else in it stays private.
import type { Partner, PartnerEntry, Registry } from "../../registry/partner.ts";
import { counterpartyIn, type RunFile } from "../run/run-file.ts";
import { RecordError, type RecordProblem } from "./check.ts";
import { requireRecord } from "./file.ts";
import type { KnownValues, PrivateRecord } from "./schema.ts";

/** Agents of either side between us and the partner: what planes 5 and 4 carry; sorted. */
function agentsBetween({ gateway, card }: Partner): readonly string[] {
  return [...new Set([...(gateway?.invokes ?? []), ...Object.keys(card.consumes)])].sort();
}

export function closedUnnamed(partner: Partner, named: readonly string[]): readonly string[] {
  return agentsBetween(partner).filter((agent) => !named.includes(agent));
}

export const NAME_OR_WITHDRAW =
  "Name every agent that it closes; or take the named ones away alone: drawbridge agent withdraw PARTNER AGENT.";

export function knownValues({ organisation }: Registry, { partner }: PartnerEntry): KnownValues {
  const invoked = (partner.gateway?.invokes ?? []).flatMap((name) => organisation.agents[name] ?? []);
  const routes = invoked.flatMap(({ cardPath, invokePath }) => [cardPath, invokePath]);
  return new Map<string, string | readonly string[]>([
    ["partner.serverName", partner.serverName],
    ["affected.agents", agentsBetween(partner)],
    ["affected.routes", routes.sort()],
    ["affected.oidcClient", partner.gateway === undefined ? "none" : partner.azp],
  ]);
}

export function registryProblems(
  record: PrivateRecord,
  registry: Registry,
  entry: PartnerEntry,
): readonly RecordProblem[] {
  const problems: RecordProblem[] = [];
  const elsewhere = "Correct the record, or name the partner that is meant.";
  const report = (field: string, message: string, rule = "record.not_in_registry", hint = elsewhere) =>
    problems.push({ rule, field, line: 0, message, hint });
  const known = knownValues(registry, entry);
  const { serverName } = entry.partner;
  if (record.partner.serverName !== serverName) {
    report("partner.serverName", `is not ${serverName}, as the registry has it`);
  }
  if (record.affected.oidcClient !== known.get("affected.oidcClient")) {
    report("affected.oidcClient", "is not the client that the registry has for this partner");
  }
  const agents = new Set([
    ...Object.keys(registry.organisation.agents),
    ...Object.keys(entry.partner.card.consumes),
  ]);
  for (const [index, name] of record.affected.agents.entries()) {
    if (!agents.has(name)) report(`affected.agents.${index}`, "is an agent that the registry does not know");
  }
  if (record.revocation.kind === "partial") {
    for (const name of closedUnnamed(entry.partner, record.affected.agents)) {
      const message = `does not name ${name}, which a partial removal would close as well`;
      report("affected.agents", message, "record.closes_more", NAME_OR_WITHDRAW);
    }
  }
  const routes = new Set(
    Object.values(registry.organisation.agents).flatMap(({ cardPath, invokePath }) => [cardPath, invokePath]),
  );
  for (const [index, path] of record.affected.routes.entries()) {
    if (!routes.has(path)) report(`affected.routes.${index}`, "is a path that the registry does not know");
  }
  return problems;
}

type RecordedRun = Omit<RunFile, "version" | "opened_at" | "baseline" | "ended">;

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
    readmission: {
      possible: readmission.possible,
      owner: readmission.owner ?? null,
      conditions: readmission.conditions,
    },
    agents: affected.agents as readonly string[],
  };
}
