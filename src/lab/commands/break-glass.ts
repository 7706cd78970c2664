// fed:break-glass: contains a partner in the lab as its operator would at night, watches from outside how fast
// each plane closes, and takes it back.
import { renderJson } from "../../cli/output.ts";
import { systemClock, systemRandom } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import type { RoomId } from "../../domain/identifiers.ts";
import { SAFE_ORDER } from "../../federation/planes/names.ts";
import { loadProbeConfig } from "../../federation/probes/config.ts";
import { partnerAttempts } from "../break-glass/attempts.ts";
import { typed } from "../break-glass/operator.ts";
import { questionsOf } from "../break-glass/questions.ts";
import { renderWatched } from "../break-glass/render.ts";
import { type Observed, Watch } from "../break-glass/watch.ts";
import { ghostFor } from "../endpoints.ts";
import type { Lab } from "../lab.ts";
import {
  type CompleteOrganisation,
  isComplete,
  parseOrganisation,
  partnerOf,
  TRAITS,
} from "../organisations.ts";
import { type Progress, progressOn } from "../progress.ts";
import { type AskResult, ask } from "../proof/ask.ts";
import { waitUntilReconciled } from "../reconciled.ts";
import { lockLab } from "../running.ts";
import { readSeed, roomOf, type Seed, seed } from "../seed/seed.ts";
import { liveSupervisor } from "../supervisor/client.ts";
import { namedLab, type ParsedOptions, parseOptions } from "./options.ts";

const USAGE = `
Usage: ./task fed:break-glass contain|restore PARTNER [--org ORG] [--traffic] [--json] [--name LAB]
       ./task fed:break-glass status [--org ORG] [--json] [--name LAB]

Contains a partner at once, by "drawbridge federation contain --run", while its programs keep trying from
outside; prints for each plane when they were refused for the first time and when they last got through, then
what the probes from outside find. "restore" takes it back, brings the people back into their rooms and has one
of them ask. The exit code is 0 when every plane was brought where it is to be, and the probes agree.

  PARTNER    org-a or org-b, or its server name
  --org ORG  who contains it; when absent the other of the two
  --traffic  the partner's people keep asking, posting and joining as well
`;

const WARM_UP_MS = 20_000;
const SETTLE_MS = 15_000;
const ANSWER_TIMEOUT_MS = 60_000;
const SOURCES = { clock: systemClock, random: systemRandom };

const wrong = (message: string) => new DrawbridgeError("usage", message, { mend: USAGE.trim() });

interface Scene {
  readonly lab: Lab;
  readonly seed: Seed;
  readonly org: CompleteOrganisation;
  readonly partner: CompleteOrganisation;
  readonly configFile: string;
  readonly probeFile: string;
}

export async function breakGlass(args: readonly string[]): Promise<number> {
  const flag = { type: "boolean" } as const;
  const options = parseOptions(args, USAGE, { org: { type: "string" }, traffic: flag, json: flag }, 2);
  if (options === undefined) return 0;
  const [act, named] = options.positionals;
  const lab = namedLab(options);
  if (act === "status") return status(lab, organisationOf(lab, options.text("org") ?? "org-a"), options);
  if ((act !== "contain" && act !== "restore") || named === undefined) {
    throw wrong("say contain or restore, and a partner; or status");
  }
  const scene = sceneOf(lab, organisationOf(lab, named), options);
  const progress = progressOn(process.stderr, systemClock);
  const lock = await lockLab(lab.paths, systemClock, progress);
  try {
    return await (act === "contain" ? contain : restore)(scene, options, progress);
  } finally {
    await lock.release();
  }
}

function organisationOf(lab: Lab, named: string): CompleteOrganisation {
  const byServer = lab.organisations.find((name) => lab.serverNames[name] === named);
  const organisation = byServer ?? parseOrganisation(named);
  if (organisation !== undefined && isComplete(organisation)) return organisation;
  throw wrong(`${named} is neither org-a nor org-b`);
}

function sceneOf(lab: Lab, partner: CompleteOrganisation, options: ParsedOptions): Scene {
  const named = options.text("org");
  const org = named === undefined ? partnerOf(partner) : organisationOf(lab, named);
  if (org === partner) throw wrong("an organisation cannot contain itself");
  const found = readSeed(lab);
  if (found === undefined || liveSupervisor(lab) === undefined) {
    throw new DrawbridgeError("not_running", `the lab ${lab.name} is not running`, {
      mend: "Start it with ./task fed:up.",
    });
  }
  const paths = lab.paths.organisation(org);
  return {
    ...{ lab, seed: found, org, partner },
    configFile: paths.federationConfig,
    probeFile: paths.probeFile(partner),
  };
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

/** Types one of the product's commands about the partner, as its JSON. */
async function about(scene: Scene, ...words: readonly string[]) {
  const { federation } = scene.lab.paths.organisation(scene.org);
  const [verb = "", ...more] = words;
  const args = ["federation", verb, scene.partner, "--config", scene.configFile, ...more, "--json"];
  const { code, stdout } = await typed(args, federation);
  let said: unknown;
  try {
    said = JSON.parse(stdout);
  } catch {
    throw new DrawbridgeError("program_failed", `drawbridge federation ${verb} ended with ${code}`, {
      mend: "What it said stands above.",
    });
  }
  return { code, said: said as Readonly<Record<string, unknown>> };
}

async function contain(scene: Scene, options: ParsedOptions, progress: Progress): Promise<number> {
  progress.doing("the partner's programs try everything once");
  const watch = watchOf(scene, options.flag("traffic"));
  watch.watch.start();
  try {
    if (!(await watch.watch.until(({ passed }) => passed > 0, WARM_UP_MS))) {
      throw new DrawbridgeError("program_failed", `${scene.partner} is not let in everywhere to begin with`, {
        mend: "See ./task fed:break-glass status, and restore it; ./task fed:up proves a whole lab.",
      });
    }
    progress.note(`${scene.partner} is let in on every plane. Breaking the glass.`);
    watch.watch.decide();
    const acted = await about(scene, "contain", "--run");
    await watch.watch.until(isStopped, SETTLE_MS);
    const observed = await watch.watch.stop();
    progress.done(`${scene.org} has contained ${scene.partner}`);
    progress.doing("the probes from outside");
    const probed = await about(scene, "probe", "--as", scene.probeFile);
    tell(options, { act: "contain", observed, acted: acted.said, probed: probed.said });
    return acted.code === 0 && probed.code === 0 && observed.every(isStopped) ? 0 : 1;
  } finally {
    await watch.end();
  }
}

async function restore(scene: Scene, options: ParsedOptions, progress: Progress): Promise<number> {
  const watch = watchOf(scene, false);
  watch.watch.start();
  try {
    watch.watch.decide();
    const acted = await about(scene, "restore", "--run");
    const isIn = ({ lastPass }: Observed) => lastPass !== null;
    await watch.watch.until(isIn, SETTLE_MS);
    const observed = await watch.watch.stop();
    progress.done(`${scene.org} has restored ${scene.partner}`);
    await waitUntilReconciled(scene.lab, systemClock, progress);
    const seeded = await seed(scene.lab, SOURCES, progress);
    progress.done("people and ghosts are back in the shared rooms");
    const answered = await askAgain(scene, seeded);
    tell(options, { act: "restore", observed, acted: acted.said, answered });
    return acted.code === 0 && observed.every(isIn) && answered.audit.outcome === "completed" ? 0 : 1;
  } finally {
    await watch.end();
  }
}

/** Containment leaves the transport open, so that bans and ACLs still reach the partner. */
function isStopped({ plane, lastPass, lastRefusal }: Observed): boolean {
  if (plane === "transport") return true;
  return lastRefusal !== null && (lastPass === null || lastRefusal.afterMs > lastPass.afterMs);
}

function watchOf({ lab, seed: found, org, partner, probeFile }: Scene, traffic: boolean) {
  const room = (of: CompleteOrganisation) => (roomOf(found, of)?.roomId ?? "") as RoomId;
  const { attempts, close } = partnerAttempts(loadProbeConfig(probeFile), room(org), traffic, SOURCES);
  const questions = traffic ? [questionsOf(lab, found, partner, org, room(partner), SOURCES)] : [];
  const watch = new Watch([...attempts, ...questions], systemClock);
  return {
    watch,
    end: async () => {
      await watch.stop();
      await close();
    },
  };
}

function askAgain({ lab, org, partner }: Scene, seeded: Seed): Promise<AskResult> {
  const room = roomOf(seeded, org);
  if (room === undefined) throw new TypeError(`${org} has no room`);
  return ask(
    {
      ...{ lab, seed: seeded, from: partner, bridgeOf: partner, publisher: org, room },
      ghost: ghostFor(lab, partner, org),
      question: TRAITS[org].sampleQuestion,
      timeoutMs: ANSWER_TIMEOUT_MS,
    },
    SOURCES,
  );
}

interface Told {
  readonly act: "contain" | "restore";
  readonly observed: readonly Observed[];
  /** What the product's own commands said. */
  readonly acted: Readonly<Record<string, unknown>>;
  readonly probed?: Readonly<Record<string, unknown>>;
  readonly answered?: AskResult;
}

function tell(options: ParsedOptions, told: Told): void {
  if (options.flag("json")) {
    process.stdout.write(renderJson({ ...told, safeOrder: SAFE_ORDER }));
    return;
  }
  const lines = [renderWatched(told.act, told.observed)];
  if (told.probed !== undefined) {
    lines.push(
      told.probed["holds"] === true
        ? "The probes from outside agree: the partner is as the registry says.\n"
        : "The probes from outside do NOT all agree; see drawbridge federation probe.\n",
    );
  }
  if (told.answered !== undefined) {
    const { audit, asker, ghost } = told.answered;
    lines.push(`${asker} asked ${ghost}: ${audit.outcome}, ${audit.terminal_reason}\n`);
  }
  process.stdout.write(lines.join("\n"));
}
