// drawbridge ghost device reset: the one way on for a device that has stopped.
import process from "node:process";
import type { Command } from "commander";
import { DrawbridgeError } from "../../domain/errors.ts";
import type { CommandModule } from "../lib/command.ts";
import { CONFIG } from "../lib/config-option.ts";
import { withDeviceAdmin } from "../lib/ghost-device-options.ts";
import { renderJson } from "../lib/output.ts";

interface Options {
  readonly config: string;
  readonly yes?: boolean;
  readonly json: boolean;
}

async function run(ghost: string, options: Options): Promise<void> {
  if (options.yes !== true) {
    throw new DrawbridgeError("usage", "a reset cannot be taken back", {
      hint: "Read --help; then repeat the command with --yes.",
    });
  }
  const done = await withDeviceAdmin(options.config, (admin) => admin.reset(ghost));
  if (options.json) process.stdout.write(renderJson(done));
  else process.stdout.write(`${done.ghost}: device ${done.to} in place of ${done.from}\n`);
}

export const command: CommandModule = {
  register(program: Command): void {
    program
      .argument("<ghost>", "an agent's name in agents.yaml, or the ghost's user ID")
      .option(...CONFIG.bridge)
      .option("--yes", "do it, knowing what is lost")
      .option("--json", "print JSON", false)
      .addHelpText(
        "after",
        `
Deletes the ghost's device at the homeserver, with its keys, and its store here. The ghost gets a new device and a
new cross-signing identity, which people's clients show as a changed identity. Lost for good: every key that only
the old device had, so encrypted questions that wait for an answer may expire; and the homeserver's memory of what
the old device sent, so an answer that was being sent at this moment may come twice. A bridge that runs takes the
new device up by itself within seconds.`,
      )
      .action(run);
  },
};
