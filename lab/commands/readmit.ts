// fed:readmit: takes a removed organisation back, between the operators of both.
import { renderJson } from "../../src/cli/lib/output.ts";
import { systemClock } from "../../src/domain/clock.ts";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { RoomsChoice } from "../../src/federation/readmission/readmission-record.ts";
import { lockLab } from "../lifecycle.ts";
import { partnerOf } from "../organisations.ts";
import { paletteFor, progressOn } from "../progress.ts";
import { readmit } from "../readmit/readmit.ts";
import { renderReadmitted } from "../readmit/render.ts";
import { partnerIn } from "./offboard.ts";
import { completeOrganisation, namedLab, parseOptions, runningSeed } from "./options.ts";

const USAGE = `
Usage: ./task fed:readmit [PARTNER=org-b] [--rooms new|reopen] [--json] [--name LAB]

After ./task fed:offboard: each operator types "drawbridge readmission" about its own deployment. The agents get
new card keys and the bridges new clients first; then the planes are opened in the order 1 to 5 on both sides;
then a person of each organisation asks the other's agent, one in an encrypted room too. One that was cut off is
gone on with; of one that is complete it is said since when, and the questions are asked again.

  PARTNER         org-b when absent
  --rooms CHOICE  of shared rooms that were kept: "new" ones in their place, when absent, or "reopen" them. What
                  the removal has replaced, as it does unless an entry says otherwise, stays replaced
  --json          print what was seen as JSON

  0  every plane was seen to be open, and the questions were answered
  1  something is otherwise; it is printed
`;

export async function readmitTask(args: readonly string[]): Promise<number> {
  const options = parseOptions(args, USAGE, { json: { type: "boolean" }, rooms: { type: "string" } }, 1);
  if (options === undefined) return 0;
  const choice = RoomsChoice.optional().safeParse(options.text("rooms"));
  if (!choice.success) {
    throw new DrawbridgeError("usage", "--rooms is new or reopen", { hint: USAGE.trim() });
  }
  const lab = namedLab(options);
  const org = partnerOf(completeOrganisation(lab, partnerIn(options), USAGE));
  const progress = progressOn(process.stderr, systemClock);
  const lock = await lockLab(lab.paths, systemClock, progress);
  try {
    const seen = await readmit({ lab, seed: runningSeed(lab), org, choice: choice.data }, progress);
    process.stdout.write(
      options.flag("json") ? renderJson(seen) : renderReadmitted(seen, paletteFor(process.stdout)),
    );
    return seen.holds ? 0 : 1;
  } finally {
    await lock.release();
  }
}
