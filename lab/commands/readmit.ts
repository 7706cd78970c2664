// fed:readmit: readmits a removed organisation, between the operators of both.
import { renderJson } from "../../src/cli/lib/command.ts";
import { RoomsChoice } from "../../src/federation/registry/committed-records.ts";
import { paletteFor } from "../progress.ts";
import { readmit } from "../readmit/readmit.ts";
import { renderReadmitted } from "../readmit/render.ts";
import {
  FLAG,
  namedLab,
  parseOptions,
  partiesOf,
  runningSeed,
  TEXT,
  usageError,
  withLockedLab,
} from "./options.ts";

const USAGE = `
Usage: ./task fed:readmit [PARTNER=org-b] [--rooms new|reopen] [--json] [--name LAB]

After ./task fed:offboard: each operator runs "drawbridge readmission" about its own deployment. The agents get
new card keys and the bridges new clients first; then the planes are opened in the order 1 to 5 on both sides;
then a person of each organisation asks the other's agent, one in an encrypted room too. An interrupted
re-admission is continued; of a complete one the time is printed, and the questions are asked again.

  PARTNER         org-b when absent
  --rooms CHOICE  for shared rooms that were kept: "new" ones in their place, when absent, or "reopen" them. Rooms
                  that the removal has replaced, which is the default of a registry, stay replaced
  --json          print the result as JSON

  0  every plane was observed open, and the questions were answered
  1  something does not hold; it is printed
`;

export async function readmitTask(args: readonly string[]): Promise<number> {
  const options = parseOptions(args, USAGE, { json: FLAG, rooms: TEXT }, 1);
  if (options === undefined) return 0;
  const choice = RoomsChoice.optional().safeParse(options.text("rooms"));
  if (!choice.success) throw usageError("--rooms is new or reopen", USAGE);
  const lab = namedLab(options);
  const { org } = partiesOf(lab, options.positionals[0] ?? "org-b", options, USAGE);
  return withLockedLab(lab, async (progress) => {
    const result = await readmit({ lab, seed: runningSeed(lab), org, choice: choice.data }, progress);
    process.stdout.write(
      options.flag("json") ? renderJson(result) : renderReadmitted(result, paletteFor(process.stdout)),
    );
    return result.holds ? 0 : 1;
  });
}
