// `drawbridge doctor`: what is wrong with a bridge, and the hint of each.
import process from "node:process";
import type { Command } from "commander";
import { examineBridge } from "../bridge/doctor/doctor.ts";
import type { Finding } from "../bridge/doctor/finding.ts";
import { systemClock } from "../domain/clock.ts";
import { type CommandModule, ExitCode } from "./lib/command.ts";
import { CONFIG, requireConfigFile } from "./lib/config-option.ts";
import { renderJson } from "./lib/output.ts";

interface Options {
  readonly config: string;
  readonly json: boolean;
}

const MARKS: Readonly<Record<Finding["state"], string>> = { ok: "ok", not_known: "?", failing: "PROBLEM" };
const WIDTH = 9;

async function run(options: Options): Promise<void> {
  requireConfigFile(options.config, CONFIG.bridge);
  const findings = await examineBridge(options.config, systemClock);
  if (options.json) {
    process.stdout.write(renderJson(findings.map((one) => ({ ...one, ok: one.state === "ok" }))));
  } else {
    for (const { name, state, found, hint } of findings) {
      process.stdout.write(`${MARKS[state].padEnd(WIDTH)}${name}: ${found}\n`);
      if (hint !== undefined) process.stdout.write(`${" ".repeat(WIDTH)}${hint}\n`);
    }
  }
  const states = new Set(findings.map(({ state }) => state));
  if (states.has("failing")) process.exitCode = ExitCode.failed;
  else if (states.has("not_known")) process.exitCode = ExitCode.incomplete;
}

export const command: CommandModule = {
  register(command: Command): void {
    command
      .option(...CONFIG.bridge)
      .option("--json", "print the findings as JSON", false)
      .addHelpText(
        "after",
        `
Looks at the bridge's folder, at its homeserver, at the card that each agent serves now, for 5 s at most, and at what
the running bridge says of itself: its database, its ghosts, and unless encryption is refused each link of their
keys. It changes nothing.
  ok       looked at, and well
  ?        could not be looked at, or is not found out yet; the next line says what to do
  PROBLEM  wrong; the next line is the hint

Exit codes:
  0  everything is ok
  1  there is a problem, an invalid configuration included
  2  there is no configuration, or the command line is wrong
  5  there is no problem, and something is not known`,
      )
      .action(run);
  },
};
