// fed:break-glass: contains a partner in the lab as its operator would in an emergency, observes from outside how fast
// each plane closes, and restores it.
import { renderJson } from "../../src/cli/lib/command.ts";
import { CONTAINMENT_ORDER } from "../../src/federation/plane-order.ts";
import { contain } from "../break-glass/contain.ts";
import { renderContained, renderRestored } from "../break-glass/render.ts";
import { restore } from "../break-glass/restore.ts";
import type { Lab } from "../lab.ts";
import { runDrawbridge } from "../programs.ts";
import {
  completeOrganisation,
  FLAG,
  namedLab,
  type ParsedOptions,
  parseOptions,
  partiesOf,
  runningSeed,
  TEXT,
  usageError,
  withLockedLab,
} from "./options.ts";

const USAGE = `
Usage: ./task fed:break-glass contain|restore PARTNER [--org ORG] [--traffic] [--json] [--name LAB]
       ./task fed:break-glass status [PARTNER] [--org ORG] [--json] [--name LAB]

"contain" cuts a partner off at once, by "drawbridge federation contain --apply", while its programs keep trying
from outside. It prints when each attempt was refused for the first time and when it was last let in, what the
probes from outside find, and whether any program was restarted. Where the witness runs, the partner goes on
writing with it.

"restore" admits it again. The partner's people accept the invitations that come with it, and one of them asks.

  PARTNER    org-a or org-b, or its server name
  --org ORG  the organisation that contains it; when absent the other of the two, or org-a without PARTNER
  --traffic  with "contain": the partner's people keep asking, posting and joining as well

  0  every plane reached its state, and every observation agrees
  1  something does not hold; it is printed
  2  the command line is wrong, or the partner is contained or removed already; nothing was done
`;

export async function breakGlass(args: readonly string[]): Promise<number> {
  const options = parseOptions(args, USAGE, { org: TEXT, traffic: FLAG, json: FLAG }, 2);
  if (options === undefined) return 0;
  const [act, named] = options.positionals;
  const lab = namedLab(options);
  if (act === "status") return status(lab, named, options);
  if ((act !== "contain" && act !== "restore") || named === undefined) {
    throw usageError("say contain or restore, and a partner; or status", USAGE);
  }
  const parties = { lab, seed: runningSeed(lab), ...partiesOf(lab, named, options, USAGE) };
  return withLockedLab(lab, async (progress) => {
    const result =
      act === "contain"
        ? await contain(parties, options.flag("traffic"), progress)
        : await restore(parties, progress);
    if (options.flag("json")) process.stdout.write(renderJson({ ...result, safeOrder: CONTAINMENT_ORDER }));
    else {
      process.stdout.write(
        result.act === "contain" ? renderContained(parties, result) : renderRestored(parties, result),
      );
    }
    for (const problem of result.problems) progress.note(`DOES NOT HOLD: ${problem}`);
    return result.problems.length === 0 ? 0 : 1;
  });
}

async function status(lab: Lab, partner: string | undefined, options: ParsedOptions): Promise<number> {
  const org =
    partner === undefined
      ? completeOrganisation(lab, options.text("org") ?? "org-a", USAGE)
      : partiesOf(lab, partner, options, USAGE).org;
  const { federationConfig, federation } = lab.paths.organisation(org);
  const json = options.flag("json") ? ["--json"] : [];
  const words = ["federation", "status", "--config", federationConfig, ...json];
  const { code, stdout } = await runDrawbridge(words, federation);
  process.stdout.write(stdout);
  return code;
}
