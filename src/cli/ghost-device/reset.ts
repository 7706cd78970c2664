// drawbridge ghost device reset: gives a ghost a new device in place of one that has stopped.
import { DrawbridgeError } from "../../domain/errors.ts";
import { defineCommand } from "../lib/command.ts";
import { withDeviceAdmin } from "../lib/ghost-devices.ts";
import { CONFIG, JSON_OPTION } from "../lib/options.ts";
import { print } from "../lib/output.ts";

export const command = defineCommand({
  arguments: [["<ghost>", "an agent's name in agents.yaml, or the ghost's user ID"]],
  options: [CONFIG.bridge, ["--yes", "do it, knowing what is lost"], JSON_OPTION],
  help: `
Deletes the ghost's device at the homeserver, with its keys, and its store here. The ghost gets a new device and a
new cross-signing identity, which people's clients show as a changed identity. Lost for good: every key that only
the old device had, so encrypted questions that wait for an answer may expire; and the homeserver's memory of what
the old device sent, so an answer that was being sent at this moment may come twice. A bridge that runs takes the
new device up by itself within seconds.`,
  async run([ghost], options) {
    if (options.yes !== true) {
      throw new DrawbridgeError("usage", "a reset cannot be taken back", {
        hint: "Read --help; then repeat the command with --yes.",
      });
    }
    const done = await withDeviceAdmin(options.config, (admin) => admin.reset(ghost));
    print(options, done, () => `${done.ghost}: device ${done.to} in place of ${done.from}\n`);
  },
});
