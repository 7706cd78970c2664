// Both sides of a removal in a process of its own that tests can kill: real git, real files, real keys.
// Argument: the folder of both. Prints `begun`, and `done` when both hold the record.
import process from "node:process";
import { A, B, openSide } from "./offboarding.ts";
import { driveToEnd } from "./offboarding-steps.ts";

const [directory = ""] = process.argv.slice(2);
const sides = [await openSide(directory, A), await openSide(directory, B)];
process.stdout.write("begun\n");
await driveToEnd(directory, sides);
process.stdout.write("done\n");
