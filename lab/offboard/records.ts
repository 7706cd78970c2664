// The signed records of removals that a lab keeps: where each side's deployment has put them.
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import type { LabPaths } from "../layout.ts";
import { COMPLETE_ORGANISATIONS } from "../organisations.ts";

/** Files, sorted; those of removals that were not completed have none. */
export function signedRecords(paths: Pick<LabPaths, "organisation">): readonly string[] {
  return COMPLETE_ORGANISATIONS.flatMap((name) => {
    const runs = join(paths.organisation(name).federationState, "offboarding");
    if (!existsSync(runs)) return [];
    return readdirSync(runs)
      .sort()
      .map((run) => join(runs, run, "record.json"))
      .filter((file) => existsSync(file));
  });
}
