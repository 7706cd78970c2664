// drawbridge bridge accept-restored-database: has bridges start on a database that was put back from a backup.
import { loadBridgeConfig } from "../../bridge/config.ts";
import { onDatabase } from "../../bridge/database.ts";
import { acceptDatabase } from "../../bridge/ledger/database-marker.ts";
import { systemClock } from "../../domain/clock.ts";
import { defineCommand, fromConfigFile, OPTION, print } from "../lib/command.ts";

export const acceptRestoredDatabaseCommand = defineCommand({
  options: [OPTION.bridge, OPTION.json],
  help: `
A bridge refuses to start on a database that is older than what it has told the homeserver: what was done since the
backup would be done again. This command cancels every question that is open in the database, because it may have been
answered since, and has nothing read that was written since the backup: whoever asked meanwhile without an answer asks
again. Stop every bridge first.`,
  async run(_, options) {
    const config = fromConfigFile(options.config, "bridge", loadBridgeConfig);
    const { noticeInterval } = config.limits;
    const ended = await onDatabase(config, (pool) => acceptDatabase(pool, systemClock.now(), noticeInterval));
    const what = `${ended.delegations} questions and ${ended.envelopes} encrypted events that waited`;
    print(options, ended, () => `Canceled: ${what}. Bridges may start.\n`);
  },
});
