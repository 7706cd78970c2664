// One re-admission to its end, as a process of its own that tests can kill: real git, real files.
// Arguments: folder. Prints `begun`, and `done` at the end.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { systemClock } from "../../src/domain/clock.ts";
import { openReadmission } from "../../src/federation/readmission/open.ts";
import { nextStep } from "../../src/federation/readmission/workflow.ts";
import { Repository } from "../../src/federation/repository/repository.ts";
import { APPROVAL, FRESH, kept, scriptedRooms, walkIn } from "./readmission.ts";

const [folder = ""] = process.argv.slice(2);
const repository = await Repository.open(join(folder, "control"), "main");
const rooms = scriptedRooms(kept("!a"));
// What was replaced before a kill stays so.
const memory = join(folder, "replaced");
const { replace, observe } = rooms;
rooms.observe = async (...args) => {
  if (existsSync(memory)) await replace(args[0], args[1], readFileSync(memory, "utf8").trim().split("\n"));
  return observe(...args);
};
rooms.replace = async (desired, partner, names) => {
  writeFileSync(memory, `${names.join("\n")}\n`, { flag: "a" });
  return replace(desired, partner, names);
};
const { context, events } = await walkIn(folder, repository, systemClock, rooms);
process.stdout.write("begun\n");
await openReadmission(context, { partner: "lighthouse", approval: APPROVAL, identities: FRESH });
let done = false;
for (let steps = 0; !done && steps < 10; steps++) {
  ({ done } = await nextStep(context, { partner: "lighthouse" }));
}
if (events.some(({ event }) => event === "drift")) process.stdout.write("drift\n");
process.stdout.write(done ? "done\n" : "left\n");
