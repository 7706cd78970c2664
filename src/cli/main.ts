// Entry point of the CLI.
import { runCommandLine } from "./lib/exit-codes.ts";
import { buildProgram } from "./program.ts";

await runCommandLine(buildProgram);
