// What the registry knows of a partner, for a new record; and whether a record and the registry agree.
import type { Partner, PartnerEntry, Registry } from "../../registry/partner.ts";
import type { RecordProblem } from "./problems.ts";
import type { PrivateRecord } from "./schema.ts";
import type { KnownValues } from "./template.ts";

/** Agents of either side between us and the partner: what planes 5 and 4 carry; sorted. */
function agentsBetween({ gateway, card }: Partner): readonly string[] {
  return [...new Set([...(gateway?.invokes ?? []), ...Object.keys(card.consumes)])].sort();
}

/** Agents that a partial removal would close although nobody has named them. */
export function closedUnnamed(partner: Partner, named: readonly string[]): readonly string[] {
  return agentsBetween(partner).filter((agent) => !named.includes(agent));
}

/** What to do where a partial removal would close more than is named. */
export const NAME_OR_WITHDRAW =
  "Name every agent that it closes; or take the named ones away alone: drawbridge agent withdraw PARTNER AGENT.";

/** Values that nobody need write by hand. */
export function knownValues({ organisation }: Registry, { partner }: PartnerEntry): KnownValues {
  const invoked = partner.gateway?.invokes ?? [];
  return new Map<string, string | readonly string[]>([
    ["partner.serverName", partner.serverName],
    ["affected.agents", agentsBetween(partner)],
    [
      "affected.routes",
      invoked
        .flatMap((name) => {
          const agent = organisation.agents[name];
          return agent === undefined ? [] : [agent.cardPath, agent.invokePath];
        })
        .sort(),
    ],
    ["affected.oidcClient", partner.gateway === undefined ? "none" : partner.azp],
  ]);
}

/** Where a record speaks of something else than the registry does. */
export function registryProblems(
  record: PrivateRecord,
  registry: Registry,
  entry: PartnerEntry,
): readonly RecordProblem[] {
  const problems: RecordProblem[] = [];
  const report = (field: string, message: string) =>
    problems.push({
      ...{ rule: "record.not_in_registry", field, line: 0, message },
      hint: "Correct the record, or name the partner that is meant.",
    });
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
      problems.push({
        ...{ rule: "record.closes_more", field: "affected.agents", line: 0 },
        message: `does not name ${name}, which a partial removal would close as well`,
        hint: NAME_OR_WITHDRAW,
      });
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
