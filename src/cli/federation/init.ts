// drawbridge federation init: writes the folder that federation control starts from.
import { resolve } from "node:path";
import { systemClock, systemRandom } from "../../domain/clock.ts";
import { shellWord } from "../../domain/printable.ts";
import { makeStartingFolder } from "../../federation/setup/starting-folder.ts";
import { defineCommand, printText, say, startingOptions } from "../lib/command.ts";

export const initCommand = defineCommand({
  options: [
    ...startingOptions("this machine"),
    ["--bridge <folder>", "the bridge's folder, whose agents are taken over; without it none is managed"],
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
