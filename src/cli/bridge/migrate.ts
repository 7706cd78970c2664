// drawbridge bridge migrate: brings the database to this release's version.
import { loadBridgeConfig } from "../../bridge/config.ts";
import { onDatabase } from "../../bridge/database.ts";
import { defineCommand, fromConfigFile, OPTION, print } from "../lib/command.ts";

export const migrateCommand = defineCommand({
  options: [OPTION.bridge, OPTION.json],
  help: `
A bridge does the same when it starts. Where its role may not change the schema, run this before, with the URL of a
role that may, such as DATABASE_URL=postgres://owner@… drawbridge bridge migrate. Stop every bridge first.`,
  async run(_, options) {
    const config = fromConfigFile(options.config, "bridge", loadBridgeConfig);
    const applied = await onDatabase(config, async (_, migrated) => migrated);
    const text = applied === 0 ? "The database is up to date." : `Migrations applied: ${applied}.`;
    print(options, { applied }, () => `${text}\n`);
  },
});
