// drawbridge federation check: checks a registry and its rendered files; no server is asked.
import { resolve } from "node:path";
import { checkFolder } from "../../federation/work-tree/check.ts";
import { defineCommand, print, renderTable } from "../lib/command.ts";

export const checkCommand = defineCommand({
  arguments: [["[directory]", "work tree of the organisation's repository; the current folder when absent"]],
  options: [["--json", "print the checks as JSON"]],
  help: "\nReads files alone: no server is asked, nothing is written. Exit code 1: a check fails, or could not be made.",
  run([folder = "."], options) {
    const checks = checkFolder(resolve(folder));
    const ok = checks.every(({ result }) => result === "ok");
    const failed = checks.filter(({ result }) => result === "failed");
    const rows = checks.map(({ name, result }) => [name, result]);
    const why = failed.map(({ name, found }) => `\n${name}:\n${found.map((line) => `  ${line}\n`).join("")}`);
    print(options, { ok, checks }, () => [renderTable(["CHECK", "RESULT"], rows), ...why].join(""));
    return ok ? "ok" : "failed";
  },
});
