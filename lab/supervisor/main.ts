// The supervisor's process: started detached by fed:up, ended by fed:down. Its argument is the lab's folder.
import { rmSync } from "node:fs";
import process from "node:process";
import { systemClock } from "../../src/domain/clock.ts";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { readIfPresent } from "../../src/runtime/write-file.ts";
import { writeJson } from "../files.ts";
import { readLab } from "../lab.ts";
import { labPaths } from "../layout.ts";
import { blockLock } from "../ports.ts";
import { identityOf } from "../processes.ts";
import { findPrograms } from "../programs.ts";
import { startControl } from "./control.ts";
import { Supervisor } from "./supervisor.ts";

const log = (message: string) => {
  process.stdout.write(`${new Date(systemClock.now()).toISOString()} ${message}\n`);
};

const paths = labPaths(process.argv[2] ?? "");
const lab = readLab(paths);
const token = readIfPresent(paths.controlToken)?.trim();
if (lab === undefined || !token) throw new DrawbridgeError("usage", `there is no lab in ${paths.directory}`);

const ports = await blockLock(lab.portBase, "running");
if (ports === undefined) throw new DrawbridgeError("program_failed", "this lab's supervisor already runs");

const supervisor = new Supervisor(lab, findPrograms(), systemClock, log);
let isEnding = false;
const end = async () => {
  if (isEnding) return;
  isEnding = true;
  log("shutting down");
  await supervisor.shutdown();
  rmSync(paths.supervisor, { force: true });
  log("all programs have ended");
  process.exit(0);
};
for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.on(signal, end);

await startControl({ port: lab.ports.control, token, supervisor, onShutdown: end });
writeJson(paths.supervisor, identityOf(process.pid));
await supervisor.start();
log(`supervising ${lab.name} as ${process.pid}`);
