// fed:offboard: the whole removal of one organisation between the operators of both, while the lab goes on.
import * as z from "zod";
import { renderJson } from "../../src/cli/lib/command.ts";
import { offboard } from "../offboard/offboard.ts";
import { ROOM_CHOICES } from "../offboard/open.ts";
import { renderOffboarded } from "../offboard/render.ts";
import { paletteFor } from "../progress.ts";
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
Usage: ./task fed:offboard [PARTNER=org-b] [--org ORG] [--emergency] [--rooms keep|replace]
                       [--json] [--name LAB]

Two operators remove PARTNER: each runs "drawbridge offboarding" about its own deployment, and they pass each
other files. Meanwhile the partner keeps trying to come in, and everybody else goes on writing. Each stage is
printed as it closes; at the end two verifiers read the record: our own, and one that is not ours. A removal that
was interrupted is continued. It takes some minutes, and restarts each of the two homeservers once.

  PARTNER      org-b when absent
  --org ORG    the organisation that removes it; when absent the other of the two
  --emergency  a compromise is suspected: planes 5, 4, 2 and 3 are closed at once, then everything is signed
  --rooms WAY  first set in both registries whether shared rooms are kept read-only ("keep") or replaced by new
               ones ("replace", the default of a registry)
  --json       print the result as JSON

  0  complete: the record verifies, every attempt is refused, and nobody else has lost a message
  1  something does not hold; it is printed
  2  the command line is wrong, or the partner is removed already; nothing was done
`;

export async function offboardTask(args: readonly string[]): Promise<number> {
  const specs = { org: TEXT, rooms: TEXT, emergency: FLAG, json: FLAG };
  const options = parseOptions(args, USAGE, specs, 1);
  if (options === undefined) return 0;
  const lab = namedLab(options);
  const { org } = partiesOf(lab, options.positionals[0] ?? "org-b", options, USAGE);
  const rooms = z.enum(ROOM_CHOICES).optional().safeParse(options.text("rooms"));
  if (!rooms.success) throw usageError("--rooms is keep or replace", USAGE);
  return withLockedLab(lab, async (progress) => {
    const kind = options.flag("emergency") ? "emergency" : "full";
    const result = await offboard({ lab, seed: runningSeed(lab), org, kind, rooms: rooms.data }, progress);
    process.stdout.write(
      options.flag("json") ? renderJson(result) : renderOffboarded(result, paletteFor(process.stdout)),
    );
    return result.holds ? 0 : 1;
  });
}
