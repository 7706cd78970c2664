// drawbridge federation render: writes what the registry means for every plane.
import { resolve } from "node:path";
import { renderFolder } from "../../federation/work-tree/check.ts";
import { defineCommand, printText, say } from "../lib/command.ts";

export const renderCommand = defineCommand({
  options: [["-d, --directory <worktree>", "work tree of the organisation's repository", { default: "." }]],
  run(_, options) {
    const changes = renderFolder(resolve(options.directory));
    for (const { change, path } of changes) printText(`${change.padEnd(8)} ${path}\n`);
    say(
      changes.length === 0
        ? "Everything is rendered already."
        : `${changes.length} files brought up to date. Review and commit them.`,
    );
  },
});
