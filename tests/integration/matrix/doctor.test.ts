import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { stringify } from "yaml";
import { loadBridgeConfig } from "../../../src/bridge/config.ts";
import { examineBridge } from "../../../src/bridge/doctor.ts";
import { renderRegistration } from "../../../src/bridge/matrix/registration.ts";
import { renderStartingFolder } from "../../../src/bridge/matrix/starting-folder.ts";
import { systemClock, systemRandom } from "../../../src/domain/clock.ts";
import { freePort } from "../../../src/runtime/free-port.ts";
import { readSecret } from "../../../src/runtime/secrets.ts";
import { type Script, scriptedHomeserver } from "../../support/scripted-homeserver.ts";
import { temporaryFolder, writeFile } from "../../support/temporary.ts";

const WELL: Script = ({ path }) => {
  if (path.endsWith("/versions")) return { body: { versions: ["v1.12"] } };
  return { body: path.endsWith("/whoami") ? { user_id: "@drawbridge:a.test" } : {} };
};

async function fixture(t: TestContext, observePort?: number) {
  const server = await scriptedHomeserver(t, WELL);
  const directory = temporaryFolder(t);
  const files = renderStartingFolder(
    {
      serverName: "a.test",
      homeserverUrl: server.url,
      appserviceUrl: "http://127.0.0.1:1",
      listenPort: await freePort(),
      observePort: observePort ?? (await freePort()),
      databaseUrlVariable: undefined,
    },
    systemRandom,
  );
  for (const [name, text] of Object.entries(files)) writeFile(join(directory, name), text);
  const config = join(directory, "bridge.yaml");
  const problems = async () => (await examineBridge(config, systemClock)).filter(({ ok }) => !ok);
  return { server, directory, config, problems };
}

test("a folder and a homeserver that are well have no problem, and no database is made to see it", async (t) => {
  const { server, directory, config } = await fixture(t);
  const loaded = loadBridgeConfig(config);
  const [asToken, hsToken] = [loaded.appservice.asToken, loaded.appservice.hsToken].map((one) =>
    readSecret(one, directory),
  );
  assert.ok(asToken !== undefined && hsToken !== undefined);
  writeFile(join(directory, "registration.yaml"), renderRegistration(loaded, { asToken, hsToken }));
  const findings = await examineBridge(config, systemClock);
  assert.deepEqual(
    findings.map(({ name, ok }) => [name, ok]),
    [
      "configuration",
      "secrets",
      "agents",
      "registration",
      "homeserver_reachable",
      "token_accepted",
      "bridge",
    ].map((name) => [name, true]),
  );
  assert.doesNotMatch(JSON.stringify(findings), new RegExp(`${asToken}|${hsToken}`));
  assert.equal(
    server.seen.some(({ path }) => path.includes("register")),
    false,
    "nothing is made",
  );
});

test("each thing that is wrong is named with its mend, and does not hide the others", async (t) => {
  const { server, directory, problems } = await fixture(t);
  writeFile(join(directory, "registration.yaml"), "as_token: old\n");
  writeFile(
    join(directory, "agents.yaml"),
    stringify({
      version: 1,
      agents: { docs: { cardUrl: "https://a.test/card", allowedServers: [], allowedSenders: [] } },
    }),
  );
  server.script = () => ({ status: 401, body: { errcode: "M_UNKNOWN_TOKEN" } });
  assert.deepEqual(
    (await problems()).map(({ name }) => name),
    ["agents", "registration", "token_accepted"],
  );
  for (const { mend } of await problems()) assert.match(mend ?? "", /^[A-Z].*\.$/);

  writeFileSync(join(directory, "secrets/content-keys"), "short\n");
  assert.deepEqual(
    (await problems()).map(({ name }) => name),
    ["secrets", "agents"],
  );
  writeFileSync(join(directory, "bridge.yaml"), "version: 2\n");
  assert.deepEqual(
    (await problems()).map(({ name }) => name),
    ["configuration"],
  );
});

test("what a running bridge says of itself is passed on", async (t) => {
  const bridge = await scriptedHomeserver(t, () => ({
    status: 503,
    body: { checks: [{ name: "database", ok: false, mend: "Start PostgreSQL." }] },
  }));
  const { server, problems } = await fixture(t, Number(new URL(bridge.url).port));
  assert.deepEqual(await problems(), [
    { name: "bridge: database", ok: false, found: "no", mend: "Start PostgreSQL." },
  ]);
  assert.ok(server.seen.some(({ path }) => path.endsWith("/appservice/drawbridge/ping")));
});
