// drawbridge federation init, render and check: the folder of a registry and its rendered files; no server is asked.
import { resolve } from "node:path";
import { systemClock, systemRandom } from "../../domain/clock.ts";
import { shellWord } from "../../domain/printable.ts";
import { ABUSE_REPORT_SCHEMA, abuseReportSchema } from "../../federation/abuse/report.ts";
import { renderAll } from "../../federation/planes/render.ts";
import { loadRegistry } from "../../federation/registry/load.ts";
import { makeStartingFolder } from "../../federation/setup/starting-folder.ts";
import {
  checkRepository,
  compareRendered,
  readReadmissions,
  readRegistryFolder,
  readRenderedFiles,
  writeRendered,
} from "../../federation/work-tree/check.ts";
import { defineCommand, startingOptions } from "../lib/command.ts";
import { ExitCode } from "../lib/exit-codes.ts";
import { print, printText, renderTable, say } from "../lib/output.ts";

export const initCommand = defineCommand({
  options: [
    ...startingOptions("this machine"),
    [
      "--bridge <folder>",
      "the folder of the bridge, whose agents are taken over; without it none is managed",
    ],
  ],
  help: `
Writes federation.yaml, the token of the border module's status, and a bare repository control.git with one commit: the
registry of an organisation without partners, and what it renders. Nothing that is there already is touched.`,
  async run(_, options) {
    const { serverName, homeserverUrl } = options;
    const directory = resolve(options.directory);
    const bridge = options.bridge === undefined ? undefined : resolve(options.bridge);
    const sources = { clock: systemClock, random: systemRandom };
    const made = await makeStartingFolder(directory, { serverName, homeserverUrl, bridge }, sources);
    printText(`${made.join("\n")}\n`);
    const config = shellWord(`${directory}/federation.yaml`);
    say(`
Next:
  1. Read federation.yaml: the paths of Synapse's files, how it is restarted, and which parts are managed here.
  2. git clone ${shellWord(`${directory}/control.git`)}; write the partners that you have already into registry/partners,
     then drawbridge federation render, commit and push.
  3. Prepare Synapse: the border module, the status token, and secrets/operator-token.
  4. drawbridge reconcile --once --config ${config}`);
  },
});

export const renderCommand = defineCommand({
  options: [["-d, --directory <worktree>", "work tree of the organisation's repository", { default: "." }]],
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
    writeRendered(directory, rendered, changes);
    say(
      changes.length === 0
        ? "Everything is rendered already."
        : `${changes.length} files brought up to date. Review and commit them.`,
    );
  },
});

export const checkCommand = defineCommand({
  arguments: [["[directory]", "work tree of the organisation's repository; the current folder when absent"]],
  options: [["--json", "print the checks as JSON"]],
  help: "\nReads files alone: no server is asked, nothing is written. Exit code 1: a check fails, or could not be made.",
  run([folder = "."], options) {
    const directory = resolve(folder);
    const checks = checkRepository(
      readRegistryFolder(directory),
      readRenderedFiles(directory),
      readReadmissions(directory),
    );
    const ok = checks.every(({ result }) => result === "ok");
    const failed = checks.filter(({ result }) => result === "failed");
    const rows = checks.map(({ name, result }) => [name, result]);
    const why = failed.map(({ name, found }) => `\n${name}:\n${found.map((line) => `  ${line}\n`).join("")}`);
    print(options, { ok, checks }, () => [renderTable(["CHECK", "RESULT"], rows), ...why].join(""));
    return ok ? ExitCode.ok : ExitCode.failed;
  },
});
