// Whether an organisation's programs ran on: the same processes before and after.
import type { Lab } from "../lab.ts";
import { type CompleteOrganisation, PROGRAMS, unitName } from "../organisations.ts";
import { childrenOf } from "../processes.ts";
import { supervisorClient } from "../supervisor/client.ts";

/** Process IDs by program, such as `homeserver`; `envoy` is the gateway's own; null for what does not run. */
export type RunningPrograms = Readonly<Record<string, number | null>>;

export interface ProgramsAfter {
  readonly before: RunningPrograms;
  readonly after: RunningPrograms;
  /** Those that another process runs now, or none. */
  readonly restarted: readonly string[];
}

/** An organisation's programs as they run now. */
export async function programsOf(lab: Lab, organisation: CompleteOrganisation): Promise<RunningPrograms> {
  const { units } = await supervisorClient(lab).status();
  const pidOf = (name: string) => units.find((unit) => unit.name === name)?.pid ?? null;
  const programs = PROGRAMS.map((program) => [program, pidOf(unitName(organisation, program))] as const);
  const gateway = pidOf(unitName(organisation, "gateway"));
  const envoy = gateway === null ? null : (childrenOf(gateway)[0] ?? null);
  return Object.fromEntries([...programs, ["envoy", envoy]]);
}

/** Holds them against what ran before. Pure. */
export function comparePrograms(before: RunningPrograms, after: RunningPrograms): ProgramsAfter {
  const restarted = Object.keys(before).filter(
    (name) => after[name] === null || before[name] !== after[name],
  );
  return { before, after, restarted };
}
