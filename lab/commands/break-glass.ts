// fed:break-glass: contains a partner in the lab as its operator would at night, watches from outside how fast
// each plane closes, and takes it back.
import { renderJson } from "../../src/cli/lib/output.ts";
import { systemClock } from "../../src/domain/clock.ts";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { CONTAINMENT_ORDER } from "../../src/federation/plane-order.ts";
import { contain, type Scene } from "../break-glass/contain.ts";
import { renderContained, renderRestored } from "../break-glass/render.ts";
import { restore } from "../break-glass/restore.ts";
import type { Lab } from "../lab.ts";
import { lockLab } from "../lifecycle.ts";
import { type CompleteOrganisation, partnerOf } from "../organisations.ts";
import { typed } from "../programs.ts";
import { progressOn } from "../progress.ts";
import { readSeed } from "../seed/seed.ts";
import { liveSupervisor } from "../supervisor/client.ts";
import { completeOrganisation, namedLab, type ParsedOptions, parseOptions } from "./options.ts";

const USAGE = `
Usage: ./task fed:break-glass contain|restore PARTNER [--org ORG] [--traffic] [--json] [--name LAB]
       ./task fed:break-glass status [--org ORG] [--json] [--name LAB]

"contain" cuts a partner off at once, by "drawbridge federation contain --apply", while its programs keep trying
from outside. It prints when each attempt was refused for the first time and when it last got through, what the
probes from outside find, and whether any program was restarted. Where the witness runs, the partner goes on
talking with it.

"restore" takes it back. The partner's people accept the invitations that come with it, and one of them asks.

  PARTNER    org-a or org-b, or its server name
  --org ORG  who contains it; when absent the other of the two. For "status": org-a when absent
  --traffic  with "contain": the partner's people keep asking, posting and joining as well

  0  every plane was brought where it is to be, and everything that was seen agrees
  1  something is otherwise; it is printed
`;

const wrong = (message: string) => new DrawbridgeError("usage", message, { hint: USAGE.trim() });

export async function breakGlass(args: readonly string[]): Promise<number> {
  const flag = { type: "boolean" } as const;
  const options = parseOptions(args, USAGE, { org: { type: "string" }, traffic: flag, json: flag }, 2);
  if (options === undefined) return 0;
  const [act, named] = options.positionals;
  const lab = namedLab(options);
  if (act === "status")
    return status(lab, completeOrganisation(lab, options.text("org") ?? "org-a", USAGE), options);
  if ((act !== "contain" && act !== "restore") || named === undefined) {
    throw wrong("say contain or restore, and a partner; or status");
  }
  const scene = sceneOf(lab, completeOrganisation(lab, named, USAGE), options.text("org"));
  const progress = progressOn(process.stderr, systemClock);
  const lock = await lockLab(lab.paths, systemClock, progress);
  try {
    const seen =
      act === "contain"
        ? await contain(scene, options.flag("traffic"), progress)
        : await restore(scene, progress);
    if (options.flag("json")) process.stdout.write(renderJson({ ...seen, safeOrder: CONTAINMENT_ORDER }));
    else {
      process.stdout.write(
        seen.act === "contain" ? renderContained(scene, seen) : renderRestored(scene, seen),
      );
    }
    for (const problem of seen.problems) progress.note(`NOT AS IT SHOULD BE: ${problem}`);
    return seen.problems.length === 0 ? 0 : 1;
  } finally {
    await lock.release();
  }
}

function sceneOf(lab: Lab, partner: CompleteOrganisation, named: string | undefined): Scene {
  const org = named === undefined ? partnerOf(partner) : completeOrganisation(lab, named, USAGE);
  if (org === partner) throw wrong("an organisation cannot contain itself");
  const found = readSeed(lab);
  if (found === undefined || liveSupervisor(lab) === undefined) {
    throw new DrawbridgeError("not_running", `the lab ${lab.name} is not running`, {
      hint: "Start it with ./task fed:up.",
    });
  }
  return { lab, seed: found, org, partner };
}

async function status(lab: Lab, org: CompleteOrganisation, options: ParsedOptions): Promise<number> {
  const { federationConfig, federation } = lab.paths.organisation(org);
  const json = options.flag("json") ? ["--json"] : [];
  const { code, stdout } = await typed(
    ["federation", "status", "--config", federationConfig, ...json],
    federation,
  );
  process.stdout.write(stdout);
  return code;
}
