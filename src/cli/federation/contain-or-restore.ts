// drawbridge federation contain and restore, and the table of planes that acts on a partner print.
import { resolve } from "node:path";
import { DrawbridgeError } from "../../domain/errors.ts";
import { printableLine, shellWord } from "../../domain/printable.ts";
import {
  type ActResult,
  applyPlanes,
  limitsOf,
  type PlaneResult,
  PROCEDURES,
  performAct,
} from "../../federation/containment/contain-or-restore.ts";
import { openRunWith } from "../../federation/offboarding/run/run-file.ts";
import type { PlaneName } from "../../federation/plane-order.ts";
import { acceptedState } from "../../federation/reconcile/accept-head.ts";
import type { Federation } from "../../federation/reconcile/context.ts";
import type { Act } from "../../federation/registry/committed-records.ts";
import { findPartner, isRemoved } from "../../federation/registry/partner.ts";
import { plan } from "../../federation/workflow/plan.ts";
import { isSettled } from "../../records/conditions/evaluate.ts";
import type { DeploymentOptions } from "../lib/command.ts";
import { defineCommand, OPTION, PARTNER, print, printJson, printText, say, short } from "../lib/command.ts";
import { openForCommand, planeWords, planText, workflowReporter } from "../lib/federation.ts";

const WORDS = {
  contain: {
    help: `
The flag, the re-render and one record are committed together; then the runtime steps are printed in the safe
order, or done with --apply. A plane is closed when its parts were observed closed; one whose part this
organisation does not run is named as not managed, and never as closed. Run again after a failure, it continues.`,
    verb: "close",
    order: "closing",
    already: "contained already",
    committed: "contained",
    done: "closed",
    notDone: "NOT CLOSED YET",
    left: "STILL TO BE CLOSED",
    limits: "What cannot be taken back:",
  },
  restore: {
    help: `
Takes containment back: the flag, the re-render and one record in one commit, then the planes in reverse order.`,
    verb: "open",
    order: "opening",
    already: "not contained",
    committed: "restored",
    done: "in force",
    notDone: "NOT IN FORCE YET",
    left: "STILL TO BE OPENED",
    limits: "What a restore cannot repair:",
  },
} as const;

function containmentCommand(act: Act) {
  return defineCommand({
    arguments: [PARTNER],
    options: [
      OPTION.federation,
      ["--apply", "do the runtime steps, and observe whether each plane is as it should be"],
      ["--plan", "show what would change, and change nothing"],
      OPTION.json,
    ],
    help: WORDS[act].help,
    async run([partner], options) {
      if (options.plan !== true) return performAndPrint(act, partner, options);
      const planned = await plan(await openForCommand(options.config), PROCEDURES[act], partner);
      print(options, planned, () => planText(planned));
      return "ok";
    },
  });
}

export async function performAndPrint(
  act: Act,
  name: string,
  { config, apply, json }: DeploymentOptions & { readonly apply: boolean | undefined },
) {
  const federation = await openForCommand(config, apply === true ? workflowReporter : undefined);
  const { config: deployment } = federation;
  if (act === "restore") await refuseInEmergency(federation, name);
  const result = await performAct(federation, act, name);
  const { serverName } = result.partner.partner;
  const write = (lines: readonly string[]) => printText(`${lines.join("\n")}\n`);
  reportAct(result, resolve(deployment.directory, deployment.repository.path));
  if (act === "restore" && json !== true) write(limitLines(act, serverName));
  const onPlane = json === true ? say : (text: string) => write([text]);
  const results = apply === true ? await applySteps(result, federation, onPlane) : undefined;
  const gateway = results?.find(({ plane, done }) => plane === "gateway" && done);
  // What was put right since may have been open until then.
  const closedAt = gateway?.repairedAt ?? gateway?.at ?? null;
  const isManaged = deployment.gateway !== undefined;
  const closed = !isManaged ? "unmanaged" : closedAt === null ? undefined : Date.parse(closedAt);
  if (json === true) printJson(jsonOf(result, results, limitsOf(act, serverName, closed)));
  else {
    write(results === undefined ? stepLines(result, config) : leftLines(results, result, config));
    if (act === "contain") write(limitLines(act, serverName, closed));
  }
  return results === undefined || results.every(isSettled) ? "ok" : "incomplete";
}

/** A partner that is being removed at once is not let back in meanwhile. @throws DrawbridgeError `guard_refused`, `usage`, `head_refused` */
async function refuseInEmergency(federation: Federation, name: string): Promise<void> {
  const { desired } = await acceptedState(federation);
  const { serverName } = findPartner(desired.registry, name).partner;
  const run = openRunWith(federation.state, serverName);
  if (run?.kind !== "emergency") return;
  const what = `an emergency removal between ${serverName} and us is open (run ${run.run}); nothing was changed`;
  throw new DrawbridgeError("guard_refused", what, {
    hint: "Go on with it (drawbridge offboarding run), or end it first (drawbridge offboarding abort).",
  });
}

/** Prints each plane as it ends; and once more only where a later observation has found something else. */
async function applySteps({ act, partner }: ActResult, federation: Federation, write: typeof say) {
  const order = PROCEDURES[act].steps.map(({ plane }) => planeWords(plane)).join(", ");
  say(`In ${WORDS[act].order} order: ${order}.`);
  const reported = new Map<PlaneName, string>();
  const reportOnce = (one: PlaneResult) => {
    const text = planeLines(act, one).join("\n");
    if (reported.get(one.plane) !== text) write(text);
    reported.set(one.plane, text);
  };
  const results = await applyPlanes(federation, act, partner, reportOnce);
  results.forEach(reportOnce);
  return results;
}

function reportAct({ act, partner, record, recordPath, revision, setAside }: ActResult, repository: string) {
  const who = `${partner.partner.serverName} (${partner.name})`;
  if (record === undefined) {
    say(`${who} is ${WORDS[act].already}.`);
    const why =
      "Its entry declares every plane closed, and a restore opens none: see readmission, if it was removed.";
    if (act === "restore" && isRemoved(partner.partner)) say(why);
  } else {
    say(`${who} is ${WORDS[act].committed} in commit ${short(revision)}. The record:`);
    say(`  git -C ${shellWord(repository)} show ${shellWord(`${short(revision)}:${recordPath}`)}`);
  }
  if (setAside?.reason === "head_refused") {
    say(`SET ASIDE: the head is refused; this is built on ${short(setAside.lastGood)}, the last good one.`);
  } else if (setAside !== undefined) {
    say(`SET ASIDE: broken files were put back to ${short(setAside.lastGood)}, the last good revision:`);
    for (const path of setAside.paths) say(`  ${printableLine(path)}`);
    say("What was committed in them stays in the history, and clones are not touched. To see it:");
    say(`  git -C ${shellWord(repository)} show ${shellWord(`${short(revision)}^:FILE`)}`);
  }
}

function stepLines({ act, partner }: ActResult, config: string): readonly string[] {
  const file = shellWord(config);
  return [
    `Remaining steps, in this order (or all of them: drawbridge federation ${act} ${shellWord(partner.name)} --config ${file} --apply):`,
    ...PROCEDURES[act].steps.flatMap(({ plane }) => [
      `  ${planeWords(plane)}`,
      `    drawbridge reconcile --config ${file} --once --plane ${plane}`,
      `    drawbridge federation probe ${shellWord(partner.name)} --config ${file} --plane ${plane}`,
    ]),
  ];
}

/** What was shown not to be there, where a plane has nothing for the partner. */
const NOTHING: Readonly<Partial<Record<PlaneName, string>>> = {
  rooms: "no room is shared with this partner, or open to other servers",
  card: "no agent is offered to this partner, and none of its agents is used",
  gateway: "no agent is offered to this partner",
};

export function stateOf(act: Act, result: PlaneResult) {
  const { plane, done, verdict, outcome, reason, repairedAt, conditions } = result;
  const { verb, notDone } = WORDS[act];
  if (verdict === "unmanaged") return "not managed here; whoever runs its part has to do it";
  if (verdict === "unknown") return `${notDone} (nothing shows it: ${reason ?? "unknown"})`;
  if (verdict === "not_applicable") return `nothing to ${verb}: ${NOTHING[plane] ?? "nothing is there"}`;
  if (!done) return `${notDone} (${reason ?? outcome ?? "not applied"})`;
  const repaired = repairedAt === null ? "" : `; something of it may have been otherwise until ${repairedAt}`;
  const isPart = conditions.some((one) => one.verdict === "unmanaged");
  return `${WORDS[act].done}${isPart ? " as far as it is managed here" : ""}${repaired}`;
}

function planeLines(act: Act, one: PlaneResult): readonly string[] {
  const open = one.conditions.filter((condition) => !isSettled(condition));
  return [
    `${planeWords(one.plane)}: ${stateOf(act, one)}`,
    ...one.outOfReach.map(({ subject, reason, hint }) => `  not reached: ${subject} (${reason}); ${hint}`),
    ...open.map(({ condition, found, hint }) => `  ${condition}: ${found}; ${hint}`),
  ];
}

function leftLines(results: readonly PlaneResult[], { act, partner }: ActResult, config: string) {
  const left = results.filter((one) => !isSettled(one)).map(({ plane }) => planeWords(plane));
  const command = (verb: Act | "probe") =>
    `  drawbridge federation ${verb} ${shellWord(partner.name)} --config ${shellWord(config)}`;
  if (left.length > 0) {
    return [
      `${WORDS[act].left}: ${left.join(", ")}. Repair what is named above, then give the same command again:`,
      `${command(act)} --apply`,
    ];
  }
  return [
    "Next:",
    `${command("probe")} --probe-config FILE   # observe it from outside`,
    ...(act === "contain" ? [`${command("restore")} --apply   # take it back`] : []),
  ];
}

function limitLines(...[act, ...more]: Parameters<typeof limitsOf>): readonly string[] {
  return [WORDS[act].limits, ...limitsOf(act, ...more).map((one) => `  - ${one}`)];
}

function jsonOf(result: ActResult, results: readonly PlaneResult[] | undefined, limits: readonly string[]) {
  const { act, partner, revision, record, recordPath, setAside } = result;
  return {
    ...{ act, partner: { name: partner.name, serverName: partner.partner.serverName }, revision },
    ...{ already: record === undefined, record: record ?? null, recordPath: recordPath ?? null },
    ...{ setAside: setAside ?? null, steps: PROCEDURES[act].steps.map(({ plane }) => plane) },
    ...{ planes: results ?? null, limits },
  };
}

export const containCommand = containmentCommand("contain");
export const restoreCommand = containmentCommand("restore");
