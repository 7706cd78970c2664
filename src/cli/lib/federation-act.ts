// What `federation contain` and `federation restore` share: one act, what is left to do, and the walk.
import process from "node:process";
import type { Command } from "commander";
import { type ActResult, limitsOf, performAct } from "../../federation/containment/act.ts";
import { type PlaneWalk, stepsOf, walkPlanes } from "../../federation/containment/apply-planes.ts";
import type { Act } from "../../federation/containment/containment-record.ts";
import type { PlaneName } from "../../federation/plane-order.ts";
import { type CommandModule, ExitCode } from "./command.ts";
import {
  CONFIG_OPTION,
  openForCommand,
  planeWords,
  progressReporter,
  say,
  shellWord,
  short,
  type WalkReporter,
  walkReporter,
} from "./federation-options.ts";
import { renderJson } from "./output.ts";

interface Options {
  readonly config: string;
  readonly apply?: boolean;
  readonly json?: boolean;
}

const HELP: Readonly<Record<Act, string>> = {
  contain: `
PARTNER is a server name, or the name of a file in registry/partners. The flag, the re-render and one record
are committed together; then the runtime steps are printed in the safe order, or walked with --apply. Containing
a partner that is contained already changes nothing.

Exit codes:
  0  contained; with --apply: all four planes are closed
  2  unknown partner, the own server, or a configuration that is wrong; nothing was done
  4  the head is refused; nothing was done unless it says so
  5  with --apply: something is not closed yet, and is named`,
  restore: `
Takes containment back: the flag, the re-render and one record in one commit, then the planes in reverse order.

Exit codes:
  0  restored; with --apply: all four planes are in force
  2  unknown partner, the own server, or a registry that is invalid; nothing was done
  4  the head is refused; nothing was done unless it says so
  5  with --apply: something is not in force yet, and is named`,
};

export function actCommand(act: Act): CommandModule {
  return {
    register(program: Command): void {
      program
        .argument("<partner>", "server name, or name of the registry file")
        .option(...CONFIG_OPTION)
        .option("--apply", "walk the runtime steps and look at each plane")
        .option("--json", "print JSON")
        .addHelpText("after", HELP[act])
        .action(async (partner: string, options: Options) => {
          process.exitCode = await run(act, partner, options);
        });
    },
  };
}

async function run(act: Act, name: string, options: Options): Promise<ExitCode> {
  const reporter = walkReporter();
  const { federation } = await openForCommand(
    options.config,
    options.apply === true ? reporter : progressReporter,
  );
  const result = await performAct(
    { ...federation, onWait: () => say("another act is being committed; waiting") },
    act,
    name,
  );
  const { serverName } = result.partner.partner;
  tellAct(result);
  if (act === "restore" && options.json !== true) tellLimits(act, serverName);
  const tell = options.json === true ? say : (text: string) => process.stdout.write(`${text}\n`);
  const walks = options.apply === true ? await walk(act, result, federation, reporter, tell) : undefined;
  const gateway = walks?.find(({ plane, done }) => plane === "gateway" && done);
  // What was put right since may have been open until then.
  const closedAt = gateway?.repairedAt ?? gateway?.at ?? null;
  const closedAtMs = closedAt === null ? undefined : Date.parse(closedAt);
  if (options.json === true) {
    process.stdout.write(renderJson(jsonOf(result, walks, limitsOf(act, serverName, closedAtMs))));
  } else {
    if (walks === undefined) tellSteps(act, result, options.config);
    else tellLeft(act, walks, result, options.config);
    if (act === "contain") tellLimits(act, serverName, closedAtMs);
  }
  return walks === undefined || walks.every(({ done }) => done) ? ExitCode.ok : ExitCode.incomplete;
}

/** Tells each plane as it ends; and once more only where a later look has found something else. */
async function walk(
  act: Act,
  result: ActResult,
  federation: Parameters<typeof walkPlanes>[0],
  reporter: WalkReporter,
  tell: (text: string) => void,
): Promise<readonly PlaneWalk[]> {
  const order = act === "contain" ? "closing" : "opening";
  say(`In ${order} order: ${stepsOf(act).map(planeWords).join(", ")}.`);
  const told = new Map<PlaneName, string>();
  const tellOnce = (one: PlaneWalk) => {
    const text = linesOf(act, one).join("\n");
    if (told.get(one.plane) !== text) tell(text);
    reporter.told();
    told.set(one.plane, text);
  };
  const walks = await walkPlanes(federation, act, result.partner, { onPlane: tellOnce });
  for (const one of walks) tellOnce(one);
  const waits = reporter.waits();
  if (waits !== undefined) say(waits);
  return walks;
}

function tellAct({ act, partner, record, recordPath, revision, setAside }: ActResult): void {
  const { serverName } = partner.partner;
  if (record === undefined) {
    say(`${serverName} (${partner.name}) is ${act === "contain" ? "contained already" : "not contained"}.`);
  } else {
    say(
      `${serverName} (${partner.name}) is ${act === "contain" ? "contained" : "restored"} in commit ${short(revision)}.`,
    );
    say(`Record: ${recordPath}`);
  }
  if (setAside?.reason === "head_refused") {
    say(
      `SET ASIDE: the head may not be taken up; this is built on ${short(setAside.lastGood)}, the last good one.`,
    );
  } else if (setAside !== undefined) {
    say(`SET ASIDE: broken files were put back to ${short(setAside.lastGood)}, the last good revision:`);
    for (const path of setAside.paths) say(`  ${path}`);
  }
}

function tellSteps(act: Act, { partner }: ActResult, config: string): void {
  const file = shellWord(config);
  const lines = [
    `Remaining steps, in this order (or all of them: drawbridge federation ${act} ${partner.name} --config ${file} --apply):`,
  ];
  for (const plane of stepsOf(act)) {
    lines.push(`  ${planeWords(plane)}`);
    lines.push(`    drawbridge reconcile --config ${file} --once --plane ${plane}`);
    lines.push(`    drawbridge federation probe ${partner.name} --config ${file} --plane ${plane}`);
  }
  process.stdout.write(`${lines.join("\n")}\n`);
}

function wordOf(act: Act, { done, outcome, reason, repairedAt }: PlaneWalk): string {
  if (done) {
    const repaired =
      repairedAt === null ? "" : `; something of it may have been otherwise until ${repairedAt}`;
    return `${act === "contain" ? "closed" : "in force"}${repaired}`;
  }
  const why = reason ?? outcome ?? "not applied";
  return `${act === "contain" ? "NOT CLOSED YET" : "NOT IN FORCE YET"} (${why})`;
}

function linesOf(act: Act, one: PlaneWalk): readonly string[] {
  return [
    `${planeWords(one.plane)}: ${wordOf(act, one)}`,
    ...one.outOfReach.map(({ subject, reason, hint }) => `  not reached: ${subject} (${reason}); ${hint}`),
    ...one.evidence
      .filter(({ verdict }) => verdict === "unknown")
      .map(
        ({ probe, subject, reason }) =>
          `  cannot be told: ${probe} ${subject ?? ""} (${reason ?? "unknown"})`,
      ),
  ];
}

function tellLeft(act: Act, walks: readonly PlaneWalk[], { partner }: ActResult, config: string): void {
  const left = walks.filter(({ done }) => !done).map(({ plane }) => planeWords(plane));
  if (left.length === 0) return;
  const lines = [
    `${act === "contain" ? "STILL TO BE CLOSED" : "STILL TO BE OPENED"}: ${left.join(", ")}. Hint what is named above, then give the same command again:`,
    `  drawbridge federation ${act} ${partner.name} --config ${shellWord(config)} --apply`,
  ];
  process.stdout.write(`${lines.join("\n")}\n`);
}

function tellLimits(act: Act, serverName: string, closedAtMs?: number): void {
  const head = act === "contain" ? "What cannot be taken back:" : "What a restore cannot hint:";
  process.stdout.write(
    `${[head, ...limitsOf(act, serverName, closedAtMs).map((one) => `  - ${one}`)].join("\n")}\n`,
  );
}

function jsonOf(result: ActResult, walks: readonly PlaneWalk[] | undefined, limits: readonly string[]) {
  return {
    act: result.act,
    partner: { name: result.partner.name, serverName: result.partner.partner.serverName },
    revision: result.revision,
    already: result.record === undefined,
    record: result.record ?? null,
    recordPath: result.recordPath ?? null,
    setAside: result.setAside ?? null,
    steps: stepsOf(result.act),
    planes: walks ?? null,
    limits,
  };
}
