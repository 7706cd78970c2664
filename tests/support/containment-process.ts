// One containment with its walk, as a process of its own that tests can kill: real git, real files.
// Arguments: folder, path of the repository, partner. Prints `done` when all planes are as they should be.
import process from "node:process";
import { systemClock } from "../../src/domain/clock.ts";
import { performAct } from "../../src/federation/containment/act.ts";
import { applyPlanes } from "../../src/federation/containment/apply-planes.ts";
import { Repository } from "../../src/federation/repository/repository.ts";
import { openControl } from "./control-repository.ts";

const [folder = "", path = "", partner = ""] = process.argv.slice(2);
const repository = await Repository.open(path, "main");
const { federation, events } = await openControl(folder, repository, systemClock);
process.stdout.write("begun\n");
const { partner: entry } = await performAct(federation, "contain", partner);
const walks = await applyPlanes(federation, "contain", entry);
if (events.some(({ event }) => event === "drift")) process.stdout.write("drift\n");
process.stdout.write(walks.every(({ done }) => done) ? "done\n" : "left\n");
