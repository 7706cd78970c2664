// Entry point of the CLI.
import { runCommandLine } from "./lib/output.ts";
import { buildProgram } from "./program.ts";

await runCommandLine(buildProgram);
