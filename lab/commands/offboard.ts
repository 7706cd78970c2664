// fed:offboard: the whole removal of one organisation between the operators of both, while the lab goes on.
import { z } from "zod";
import { renderJson } from "../../src/cli/lib/output.ts";
import { systemClock } from "../../src/domain/clock.ts";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { lockLab } from "../lifecycle.ts";
import { offboard } from "../offboard/offboard.ts";
import { KEPT_OR_REPLACED } from "../offboard/open.ts";
import { renderOffboarded } from "../offboard/render.ts";
import { partnerOf } from "../organisations.ts";
import { paletteFor, progressOn } from "../progress.ts";
import { completeOrganisation, namedLab, type ParsedOptions, parseOptions, runningSeed } from "./options.ts";

const USAGE = `
Usage: ./task fed:offboard [PARTNER=org-b] [--org ORG] [--emergency] [--rooms keep|replace]
                       [--json] [--name LAB]

Two operators remove PARTNER: each types "drawbridge offboarding" about its own deployment, and they pass each
other files. Meanwhile the partner keeps trying to come in, and everybody else goes on talking. Each stage is
printed as it closes; at the end two verifiers read the record: our own, and one that is not ours. A removal that
was cut off is gone on with. It takes some minutes, and restarts each of the two homeservers once.

  PARTNER      org-b when absent
  --org ORG    who removes it; when absent the other of the two
  --emergency  a compromise is suspected: planes 5, 4, 2 and 3 are closed at once, then everything is signed
  --rooms WAY  both registries are made to say first that shared rooms are kept read-only ("keep"), or that new
               ones stand for them ("replace", which a registry says that says nothing)
  --json       print what was seen as JSON

  0  complete: the record verifies, nothing gets through, and nobody else has lost a message
  1  something is otherwise; it is printed
`;

export async function offboardTask(args: readonly string[]): Promise<number> {
  const flag = { type: "boolean" } as const;
  const specs = { org: { type: "string" }, rooms: { type: "string" }, emergency: flag, json: flag } as const;
  const options = parseOptions(args, USAGE, specs, 1);
  if (options === undefined) return 0;
  const lab = namedLab(options);
  const partner = completeOrganisation(lab, partnerIn(options), USAGE);
  const named = options.text("org");
  const org = named === undefined ? partnerOf(partner) : completeOrganisation(lab, named, USAGE);
  if (org === partner) {
    throw new DrawbridgeError("usage", "an organisation cannot remove itself", { hint: USAGE.trim() });
  }
  const rooms = z.enum(KEPT_OR_REPLACED).optional().safeParse(options.text("rooms"));
  if (!rooms.success)
    throw new DrawbridgeError("usage", "--rooms is keep or replace", { hint: USAGE.trim() });
  const progress = progressOn(process.stderr, systemClock);
  const lock = await lockLab(lab.paths, systemClock, progress);
  try {
    const seed = runningSeed(lab);
    const kind = options.flag("emergency") ? "emergency" : "full";
    const seen = await offboard({ lab, seed, org, kind, rooms: rooms.data }, progress);
    process.stdout.write(
      options.flag("json") ? renderJson(seen) : renderOffboarded(seen, paletteFor(process.stdout)),
    );
    return seen.holds ? 0 : 1;
  } finally {
    await lock.release();
  }
}

/** `PARTNER=org-b` as make(1) has it, or the name alone. */
export function partnerIn(options: ParsedOptions): string {
  return (options.positionals[0] ?? "org-b").replace(/^PARTNER=/, "");
}
