// drawbridge federation render: writes what the registry means for every plane, or says what differs from it.
import { resolve } from "node:path";
import process from "node:process";
import type { Command } from "commander";
import { renderAll } from "../../federation/planes/render.ts";
import { loadRegistry } from "../../federation/registry/load.ts";
import {
  compareRendered,
  readRegistryFolder,
  readRenderedFiles,
  writeRendered,
} from "../../federation/work-tree/files.ts";
import { type CommandModule, ExitCode } from "../lib/command.ts";

interface Options {
  readonly directory: string;
  readonly check: boolean;
}

function run(options: Options): void {
  const directory = resolve(options.directory);
  const rendered = renderAll(loadRegistry(readRegistryFolder(directory)));
  const changes = compareRendered(readRenderedFiles(directory), rendered);
  for (const { change, path } of changes) process.stdout.write(`${change.padEnd(8)} ${path}\n`);
  if (!options.check) {
    writeRendered(directory, rendered, changes);
    process.stderr.write(
      changes.length === 0
        ? "Everything is rendered already.\n"
        : `${changes.length} files brought up to date. Review and commit them.\n`,
    );
  } else if (changes.length > 0) {
    process.stderr.write("These files are not what the registry says; run `drawbridge federation render`.\n");
    process.exitCode = ExitCode.failed;
  }
}

export const command: CommandModule = {
  register(command: Command): void {
    command
      .option("-d, --directory <worktree>", "work tree of the organisation's repository", ".")
      .option("--check", "write nothing; exit 1 and list the files that differ from the registry", false)
      .addHelpText(
        "after",
        `
Exit codes:
  0  written, or nothing was to do; with --check: every file is what the registry renders
  1  with --check: the files that are listed differ
  2  there is no registry, or it is invalid; nothing was written`,
      )
      .action(run);
  },
};
