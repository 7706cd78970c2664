#!/usr/bin/env node
// drawbridge-verify: the command `drawbridge verify` as a program of its own, for auditors who install nothing else.
import { Command } from "commander";
import { runCommandLine } from "../../src/cli/lib/command.ts";
import { command } from "../../src/cli/verify.ts";
import manifest from "./package.json" with { type: "json" };

await runCommandLine(() => {
  const program = new Command("drawbridge-verify")
    .description(manifest.description)
    .version(manifest.version)
    .showHelpAfterError("hint: Run it with --help to see its usage.")
    .exitOverride();
  command(program);
  return program;
});
