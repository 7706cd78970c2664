// drawbridge federation render: writes what the registry means for every plane, or says what differs from it.
import { resolve } from "node:path";
import { ABUSE_REPORT_SCHEMA, abuseReportSchema } from "../../federation/abuse/report.ts";
import { renderAll } from "../../federation/planes/render.ts";
import { loadRegistry } from "../../federation/registry/load.ts";
import {
  compareRendered,
  readRegistryFolder,
  readRenderedFiles,
  writeRendered,
} from "../../federation/work-tree/files.ts";
import { defineCommand } from "../lib/command.ts";
import { ExitCode } from "../lib/exit-codes.ts";
import { printText, say } from "../lib/output.ts";

export const command = defineCommand({
  options: [
    ["-d, --directory <worktree>", "work tree of the organisation's repository", { default: "." }],
    ["--check", "write nothing; exit 1 and list the files that differ from the registry"],
  ],
  help: `
Exit codes:
  0  written, or nothing was to do; with --check: every file is what the registry renders
  1  with --check: the files that are listed differ
  2  there is no registry, or it is invalid; nothing was written`,
  run(_, options) {
    const directory = resolve(options.directory);
    const registry = readRegistryFolder(directory);
    const rendered = new Map([
      ...renderAll(loadRegistry(registry)),
      [ABUSE_REPORT_SCHEMA, abuseReportSchema()],
    ]);
    const found = new Map([
      ...readRenderedFiles(directory),
      ...[...registry].filter(([path]) => path === ABUSE_REPORT_SCHEMA),
    ]);
    const changes = compareRendered(found, rendered);
    for (const { change, path } of changes) printText(`${change.padEnd(8)} ${path}\n`);
    if (options.check === true) {
      if (changes.length === 0) return ExitCode.ok;
      say("These files are not what the registry says; run `drawbridge federation render`.");
      return ExitCode.failed;
    }
    writeRendered(directory, rendered, changes);
    say(
      changes.length === 0
        ? "Everything is rendered already."
        : `${changes.length} files brought up to date. Review and commit them.`,
    );
    return ExitCode.ok;
  },
});
