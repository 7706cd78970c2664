// drawbridge bridge migrate: brings the bridge's database to this release's version, such as by a role that owns the tables
// while the bridge's own may not change them.
import { loadBridgeConfig } from "../../bridge/config.ts";
import { migrateDatabase } from "../../bridge/database.ts";
import { defineCommand } from "../lib/command.ts";
import { CONFIG, JSON_OPTION, requireConfigFile } from "../lib/options.ts";
import { print } from "../lib/output.ts";

export const command = defineCommand({
  options: [CONFIG.bridge, JSON_OPTION],
  help: `
A bridge does the same when it starts. Where its role may not change the schema, run this before, with the URL of a
role that may, such as DATABASE_URL=postgres://owner@… drawbridge bridge migrate. Bridges that run go on meanwhile.`,
  async run(_, options) {
    requireConfigFile(options.config, "bridge");
    const applied = await migrateDatabase(loadBridgeConfig(options.config));
    print(options, { applied }, () =>
      applied === 0 ? "The database is up to date.\n" : `Migrations applied: ${applied}.\n`,
    );
  },
});
