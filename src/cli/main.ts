// Entry point of the CLI.
import { THREADS } from "../runtime/name-lookups.ts";
import { runCommandLine } from "./lib/command.ts";
import { buildProgram } from "./program.ts";

// Before any of them is used: then they are made.
process.env["UV_THREADPOOL_SIZE"] ??= String(THREADS);
await runCommandLine(buildProgram);
