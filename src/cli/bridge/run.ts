// drawbridge bridge: runs the bridge of one organisation.
import { resolve } from "node:path";
import { loadBridgeConfig } from "../../bridge/config.ts";
import { runBridge } from "../../bridge/process.ts";
import { systemClock, systemRandom } from "../../domain/clock.ts";
import { serviceLog, stopSignal } from "../../runtime/service.ts";
import { defineCommand, fromConfigFile, OPTION } from "../lib/command.ts";

export const command = defineCommand({
  options: [OPTION.bridge],
  help: `
Runs in the foreground until SIGTERM, then drains. The log is one JSON object a line, without content.
/livez, /readyz and /metrics are served at the address that \`observe\` names in the configuration.`,
  async run(_, options) {
    const config = fromConfigFile(options.config, "bridge", loadBridgeConfig);
    const { level, file } = config.log;
    const to = file === undefined ? {} : { file: resolve(config.directory, file) };
    const log = serviceLog("bridge", { level, ...to });
    await runBridge({ config, clock: systemClock, random: systemRandom, log, stop: stopSignal() });
  },
});
