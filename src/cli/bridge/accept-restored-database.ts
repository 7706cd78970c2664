// drawbridge bridge accept-restored-database: has bridges start again on a database that was put back from a backup.
import { loadBridgeConfig } from "../../bridge/config.ts";
import { acceptRestoredDatabase } from "../../bridge/database.ts";
import { systemClock } from "../../domain/clock.ts";
import { defineCommand } from "../lib/command.ts";
import { CONFIG, JSON_OPTION, requireConfigFile } from "../lib/options.ts";
import { print } from "../lib/output.ts";

export const command = defineCommand({
  options: [CONFIG.bridge, JSON_OPTION],
  help: `
A bridge refuses to start on a database that is older than what it has told the homeserver: what was done since the
backup would be done again. This command cancels every question that is open in the database, because it may have been
answered since, and has nothing read that was written since the backup: whoever asked meanwhile without an answer asks
again. Stop every bridge first.`,
  async run(_, options) {
    requireConfigFile(options.config, "bridge");
    const ended = await acceptRestoredDatabase(loadBridgeConfig(options.config), systemClock.now());
    print(
      options,
      ended,
      () =>
        `Canceled: ${ended.delegations} questions and ${ended.envelopes} encrypted events that waited. Bridges may start.\n`,
    );
  },
});
