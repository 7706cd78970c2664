// drawbridge federation render: writes what the registry means for every plane.
import { resolve } from "node:path";
import { renderFolder } from "../../federation/work-tree/check.ts";
import { defineCommand, printText, say } from "../lib/command.ts";

export const renderCommand = defineCommand({
  options: [["-d, --directory <worktree>", "work tree of the organisation's repository", { default: "." }]],
  run(_, options) {
    const changes = renderFolder(resolve(options.directory));
    for (const { change, path } of changes) printText(`${change.padEnd(8)} ${path}\n`);
    const count = changes.length;
    if (count === 0) say("Everything is rendered already.");
    else say(`${count} files brought up to date. Review and commit them.`);
  },
});
