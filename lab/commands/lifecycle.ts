// Starts and ends a lab's programs as a whole.
// Invariants: of several commands of one lab at once, one works and the others wait; programs that a crashed
// supervisor left running are ended first; only the lab's own processes are ever ended.
import { spawn } from "node:child_process";
import { closeSync, mkdirSync, openSync, realpathSync, rmSync } from "node:fs";
import { join } from "node:path";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { type NamedLock, namedLock } from "../../src/runtime/named-lock.ts";
import { readIfPresent } from "../../src/runtime/write-file.ts";
import { provision, provisionWitness } from "../configuration/provision.ts";
import { keepSecret, readJson } from "../files.ts";
import { admitWitness, type Lab, prepareLab, readLab, SOURCES } from "../lab.ts";
import { CLONE, type LabPaths } from "../layout.ts";
import { unitName, WITNESS } from "../organisations.ts";
import {
  endProcesses,
  isAlive,
  LAB_ID_VARIABLE,
  type ProcessIdentity,
  processesOfLab,
} from "../processes.ts";
import { findPrograms } from "../programs.ts";
import type { Progress } from "../progress.ts";
import { seedPeople } from "../seed/accounts.ts";
import { liveSupervisor, supervisorClient, type UnitStatus } from "../supervisor/client.ts";
import { ProcessRecord } from "../supervisor/supervisor.ts";

const LOCK_TIMEOUT_MS = 300_000;
const SUPERVISOR_TIMEOUT_MS = 20_000;
/** A program that was restarted so often while it was waited for does not become ready. */
const RESTARTS_MAX = 8;
const READY_TIMEOUT_MS = 180_000;
const SHUTDOWN_TIMEOUT_MS = 60_000;
const POLL_MS = 100;
const GRACE_MS = 10_000;
const { clock } = SOURCES;
const KEPT_VARIABLES = /^(?:PATH|HOME|USER|LOGNAME|LANG|LC_[A-Z]+|TZ|TMPDIR|DRAWBRIDGE_[A-Z_]+)$/;

/** Taken by every command that changes this lab; commands that only read do not need it. */
export function lockLab(paths: LabPaths, progress: Progress): Promise<NamedLock> {
  mkdirSync(paths.directory, { recursive: true });
  return namedLock(`lab ${realpathSync(paths.directory)}`, {
    clock,
    timeoutMs: LOCK_TIMEOUT_MS,
    holder: "another command of this lab",
    onWait: () => progress.note("Another command of this lab is running; waiting for it."),
  });
}

/** The processes that a crashed supervisor of this lab left running: recorded, or carrying the lab's ID. */
export function leftovers(lab: Lab): ProcessIdentity[] {
  const recorded = Object.values(readJson(ProcessRecord, lab.paths.processes) ?? {}).filter(isAlive);
  const carrying = processesOfLab(lab.id);
  const known = new Set(carrying.map((identity) => identity.pid));
  return [...carrying, ...recorded.filter((identity) => !known.has(identity.pid))];
}

/** How the lab was found by `ensureRunning`. */
export type Found = "running" | "repaired" | "started";

/**
 * Brings the lab to running, whatever state it is in. The lock must be held.
 * @throws DrawbridgeError `program_failed` when a program does not become ready
 */
export async function ensureRunning(
  name: string,
  paths: LabPaths,
  progress: Progress,
  withWitness = false,
): Promise<{ lab: Lab; found: Found }> {
  const before = readLab(paths);
  if (before !== undefined && (await isSupervised(before))) {
    const lab = withWitness ? await addWitness(before, progress) : before;
    await bringUp(lab, progress);
    await healLinks(lab, progress);
    return { lab, found: "running" };
  }
  const left = before === undefined ? [] : leftovers(before);
  if (left.length > 0) {
    progress.note("The lab's supervisor has died; ending the programs it left behind.");
    await endProcesses(left, GRACE_MS, clock);
  }
  const programs = findPrograms();
  const { lab, block, portsChanged } = await prepareLab(name, paths, SOURCES, withWitness);
  try {
    if (portsChanged) progress.note("Another program has taken a port of this lab; it has other ports now.");
    const edited = await provision(lab, programs);
    for (const file of edited.kept) progress.note(`Changed since the lab wrote it, left as it is: ${file}`);
    for (const file of edited.restored) progress.note(`Edited by hand, now as the registry says: ${file}`);
    progress.done(`configuration, keys and certificates of ${castOf(lab)}`);
    await startSupervisor(lab);
  } finally {
    await block.lock.release();
  }
  await bringUp(lab, progress);
  return { lab, found: left.length > 0 ? "repaired" : "started" };
}

/** For people: `three organisations`, or with the witness. */
export function castOf(lab: Lab): string {
  return lab.organisations.includes(WITNESS) ? "three organisations and a witness" : "three organisations";
}

/** Adds the witness to a lab that runs; the registries of A and B name it already. */
async function addWitness(before: Lab, progress: Progress): Promise<Lab> {
  if (before.organisations.includes(WITNESS)) return before;
  const lab = admitWitness(before.paths);
  await provisionWitness(lab);
  await supervisorClient(lab).execute({ action: "extend" });
  progress.done("a homeserver of the neutral witness, org-d");
  return lab;
}

async function healLinks(lab: Lab, progress: Progress): Promise<void> {
  const client = supervisorClient(lab);
  for (const between of (await client.status()).cutLinks) {
    await client.execute({ action: "heal", between });
    progress.note(`The link between ${between.join(" and ")} was cut; it is healed.`);
  }
}

async function isSupervised(lab: Lab): Promise<boolean> {
  const supervisor = liveSupervisor(lab);
  if (supervisor === undefined) return false;
  try {
    return (await supervisorClient(lab).status()).pid === supervisor.pid;
  } catch {
    return false; // Alive and silent: its process is among the leftovers, to be ended.
  }
}

async function startSupervisor(lab: Lab): Promise<void> {
  const { paths } = lab;
  await keepSecret(paths.controlToken);
  mkdirSync(paths.logs, { recursive: true });
  rmSync(paths.supervisor, { force: true });
  rmSync(paths.processes, { force: true });
  const logFile = paths.log("supervisor");
  const log = openSync(logFile, "a", 0o600);
  const child = spawn(process.execPath, [join(CLONE, "lab", "supervisor", "main.ts"), paths.directory], {
    cwd: paths.directory,
    detached: true,
    stdio: ["ignore", log, log],
    env: programEnvironment(lab),
  });
  closeSync(log);
  let ended = false;
  child.once("exit", () => {
    ended = true;
  });
  child.unref();
  const deadline = clock.now() + SUPERVISOR_TIMEOUT_MS;
  while (liveSupervisor(lab) === undefined) {
    if (ended || clock.now() > deadline) {
      throw new DrawbridgeError("program_failed", "the lab's supervisor does not start", {
        hint: `Read the end of ${logFile}.`,
      });
    }
    await clock.sleep(POLL_MS);
  }
}

/** As from a service manager: no variable of the caller's shell, such as a proxy, reaches the programs. */
function programEnvironment(lab: Lab): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(([name]) => KEPT_VARIABLES.test(name));
  return { ...Object.fromEntries(kept), [LAB_ID_VARIABLE]: lab.id };
}

/** People are registered as soon as the homeservers run: others wait for their tokens. */
async function bringUp(lab: Lab, progress: Progress): Promise<void> {
  const { units } = await supervisorClient(lab).status();
  // Programs of a lab that runs already are not reported.
  const reported = new Set(
    units.every(({ state }) => state === "ready") ? units.map(({ name }) => name) : [],
  );
  const homeservers = lab.organisations.map((organisation) => unitName(organisation, "homeserver"));
  const isHomeserver = (name: string) => homeservers.includes(name);
  await waitUntilReady(lab, progress, reported, isHomeserver);
  await seedPeople(lab, progress);
  await waitUntilReady(lab, progress, reported, () => true);
}

async function waitUntilReady(
  lab: Lab,
  progress: Progress,
  reported: Set<string>,
  isWanted: (unit: string) => boolean,
): Promise<void> {
  const client = supervisorClient(lab);
  const deadline = clock.now() + READY_TIMEOUT_MS;
  const { units: before } = await client.status();
  for (;;) {
    const status = await client.status();
    const open = status.units.filter((unit) => unit.state !== "ready" && isWanted(unit.name));
    for (const unit of status.units) {
      if (unit.state === "stopped") await client.execute({ action: "start", unit: unit.name });
      if (unit.state === "ready" && !reported.has(unit.name)) {
        reported.add(unit.name);
        progress.done(unit.name, unit.readyAfterMs ?? undefined);
      }
    }
    if (open.length === 0) return;
    progress.doing(`waiting for ${open.map((unit) => unit.name).join(", ")}`);
    const failing = failingUnit(open, before);
    if (failing !== undefined || clock.now() > deadline) {
      throw notReady(lab, failing ?? open[0]);
    }
    await clock.sleep(POLL_MS);
  }
}

type Restarts = Pick<UnitStatus, "name" | "restarts">;

/** A unit that keeps ending. Restarts of before, such as those after a test has killed it, do not count. */
export function failingUnit<Unit extends Restarts>(
  units: readonly Unit[],
  before: readonly Restarts[],
): Unit | undefined {
  const restartsBefore = new Map(before.map(({ name, restarts }) => [name, restarts]));
  return units.find(({ name, restarts }) => restarts - (restartsBefore.get(name) ?? 0) >= RESTARTS_MAX);
}

function notReady(lab: Lab, unit: UnitStatus | undefined): DrawbridgeError {
  // A program that never ran has written nothing; the supervisor's log says why.
  const written = readIfPresent(unit?.log ?? "")?.trimEnd();
  const file = written ? unit?.log : lab.paths.log("supervisor");
  const lines = (written || (unit?.lastEnd ?? "it has written nothing")).split("\n").slice(-8);
  return new DrawbridgeError(
    "program_failed",
    [`${unit?.name} does not become ready:`, ...lines.map((line) => `  | ${line}`)].join("\n"),
    { hint: `Read ${file}; ./task fed:status shows the rest.` },
  );
}

/** Ends every process of the lab; true if there was one. The lock must be held. */
export async function endLab(lab: Lab, progress: Progress): Promise<boolean> {
  const supervisor = liveSupervisor(lab);
  const left = leftovers(lab);
  if (supervisor !== undefined && (await isSupervised(lab))) {
    progress.doing("ending the programs in order");
    await supervisorClient(lab).execute({ action: "shutdown" });
    const deadline = clock.now() + SHUTDOWN_TIMEOUT_MS;
    while (isAlive(supervisor) && clock.now() < deadline) await clock.sleep(POLL_MS);
  }
  await endProcesses(leftovers(lab), GRACE_MS, clock);
  rmSync(lab.paths.supervisor, { force: true });
  rmSync(lab.paths.processes, { force: true });
  return supervisor !== undefined || left.length > 0;
}
