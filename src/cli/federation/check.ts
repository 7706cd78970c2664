// drawbridge federation check: what can be known of an organisation's repository without any server.
import { resolve } from "node:path";
import { checkRepository } from "../../federation/work-tree/check.ts";
import { readReadmissions, readRegistryFolder, readRenderedFiles } from "../../federation/work-tree/files.ts";
import { defineCommand } from "../lib/command.ts";
import { ExitCode } from "../lib/exit-codes.ts";
import { print, renderTable } from "../lib/output.ts";

export const command = defineCommand({
  arguments: [["[directory]", "work tree of the organisation's repository", "."]],
  options: [["--json", "print the checks as JSON"]],
  help: `
Reads files alone: no server is asked, nothing is written.

Exit codes:
  0  every check holds
  1  one does not, or could not be made
  2  the folder holds no registry`,
  run([folder], options) {
    const directory = resolve(folder);
    const checks = checkRepository(
      readRegistryFolder(directory),
      readRenderedFiles(directory),
      readReadmissions(directory),
    );
    const ok = checks.every(({ result }) => result === "ok");
    const failed = checks.filter(({ result }) => result === "failed");
    print(options, { ok, checks }, () =>
      [
        renderTable(
          ["CHECK", "RESULT"],
          checks.map(({ name, result }) => [name, result]),
        ),
        ...failed.map(({ name, found }) => `\n${name}:\n${found.map((line) => `  ${line}\n`).join("")}`),
      ].join(""),
    );
    return ok ? ExitCode.ok : ExitCode.failed;
  },
});
