// Entry point of the CLI.
import { runCommandLine } from "./lib/command-line.ts";
import { buildProgram } from "./program.ts";

await runCommandLine(buildProgram);
