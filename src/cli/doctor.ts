// `drawbridge doctor`: what is wrong with a bridge, and the mend of each.
import process from "node:process";
import type { Command } from "commander";
import { examineBridge } from "../bridge/doctor.ts";
import { systemClock } from "../domain/clock.ts";
import { type CommandModule, ExitCode } from "./command.ts";
import { renderJson } from "./output.ts";

interface Options {
  readonly config: string;
  readonly json: boolean;
}

async function run(options: Options): Promise<void> {
  const findings = await examineBridge(options.config, systemClock);
  if (options.json) process.stdout.write(renderJson(findings));
  else {
    for (const { name, ok, found, mend } of findings) {
      process.stdout.write(`${(ok ? "ok" : "PROBLEM").padEnd(9)}${name}: ${found}\n`);
      if (mend !== undefined) process.stdout.write(`${" ".repeat(9)}${mend}\n`);
    }
  }
  if (findings.some(({ ok }) => !ok)) process.exitCode = ExitCode.failed;
}

export const command: CommandModule = {
  register(command: Command): void {
    command
      .requiredOption("-c, --config <file>", "the bridge's configuration")
      .option("--json", "print the findings as JSON", false)
      .action(run);
  },
};
