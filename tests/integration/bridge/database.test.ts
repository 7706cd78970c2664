import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { pino } from "pino";
import { loadBridgeConfig } from "../../../src/bridge/config.ts";
import { openDatabase } from "../../../src/bridge/database.ts";
import { renderStartingFolder } from "../../../src/bridge/matrix/starting-folder.ts";
import { systemClock, systemRandom } from "../../../src/domain/clock.ts";

import { temporaryFolder, writeFile } from "../../support/temporary.ts";

const silentLog = pino({ level: "silent" });

test("an embedded server that ends on its own is noticed, and a new start brings it back", async (t) => {
  const folder = temporaryFolder(t);
  const files = renderStartingFolder(
    {
      serverName: "a.test",
      homeserverUrl: "http://127.0.0.1:1",
      appserviceUrl: "http://127.0.0.1:2",
      listenPort: 2,
      observePort: 3,
      databaseUrlVariable: undefined,
    },
    systemRandom,
  );
  for (const [name, content] of Object.entries(files)) writeFile(`${folder}/${name}`, content, 0o600);
  const config = loadBridgeConfig(`${folder}/bridge.yaml`);

  const first = await openDatabase(config, systemClock, silentLog);
  await first.pool.query("CREATE TABLE kept ()");
  const lost = once(first.lost, "abort");
  const { rows } = await first.pool.query<{ pid: string }>(
    "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1) AS pid",
  );
  process.kill(Number(rows[0]?.pid), "SIGTERM");
  await first.pool.end();
  await lost;
  assert.equal((first.lost.reason as { code?: string }).code, "database_unavailable");

  const second = await openDatabase(config, systemClock, silentLog);
  t.after(() => second.close());
  await second.pool.query("SELECT FROM kept");
  assert.equal(second.lost.aborted, false);
});
