// drawbridge federation check: what can be known of an organisation's repository without any server.
import { resolve } from "node:path";
import process from "node:process";
import type { Command } from "commander";
import { checkRepository } from "../../federation/work-tree/check.ts";
import { readRegistryFolder, readRenderedFiles } from "../../federation/work-tree/files.ts";
import { type CommandModule, ExitCode } from "../lib/command.ts";
import { renderJson, renderTable } from "../lib/output.ts";

function run(folder: string, options: { readonly json: boolean }): void {
  const directory = resolve(folder);
  const checks = checkRepository(readRegistryFolder(directory), readRenderedFiles(directory));
  const ok = checks.every(({ result }) => result === "ok");
  if (options.json) process.stdout.write(renderJson({ ok, checks }));
  else {
    process.stdout.write(
      renderTable(
        ["CHECK", "RESULT"],
        checks.map(({ name, result }) => [name, result]),
      ),
    );
    for (const { name, found } of checks.filter(({ result }) => result === "failed")) {
      process.stdout.write(`\n${name}:\n${found.map((line) => `  ${line}\n`).join("")}`);
    }
  }
  if (!ok) process.exitCode = ExitCode.failed;
}

export const command: CommandModule = {
  register(command: Command): void {
    command
      .argument("[directory]", "work tree of the organisation's repository", ".")
      .option("--json", "print the checks as JSON", false)
      .addHelpText(
        "after",
        `
Reads files alone: no server is asked, nothing is written.

Exit codes:
  0  every check holds
  1  one does not, or could not be made
  2  the folder holds no registry`,
      )
      .action(run);
  },
};
