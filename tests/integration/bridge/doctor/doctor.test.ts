import assert from "node:assert/strict";
import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { stringify } from "yaml";
import { freePort } from "../../../../lab/ports.ts";
import { loadBridgeConfig } from "../../../../src/bridge/config.ts";
import { examineBridge } from "../../../../src/bridge/doctor/doctor.ts";
import { renderRegistration } from "../../../../src/bridge/setup/registration.ts";
import { renderStartingFolder } from "../../../../src/bridge/setup/starting-folder.ts";
import { ExitCode } from "../../../../src/cli/lib/exit-codes.ts";
import { systemClock, systemRandom } from "../../../../src/domain/clock.ts";
import { readSecret } from "../../../../src/runtime/secrets.ts";
import { agentsYaml } from "../../../support/agents.ts";
import { bytesOf, fullCard, signedCard, testKey } from "../../../support/cards.ts";
import { runCliHere } from "../../../support/cli-in-process.ts";
import { httpServer, json, type Script, scriptedHomeserver } from "../../../support/http-server.ts";
import { temporaryFolder, writeFile } from "../../../support/temporary.ts";

// Nothing listens there: the doctor reads the URL and connects to nothing.
process.env["DATABASE_URL"] = "postgresql://bridge@127.0.0.1:1/bridge";

const WELL: Script = ({ path }) => {
  if (path.endsWith("/versions")) return { body: { versions: ["v1.12"] } };
  return { body: path.endsWith("/whoami") ? { user_id: "@drawbridge:a.test" } : {} };
};

/** A card with one interface, at this server. */
function cardAt(url: string) {
  const supportedInterfaces = [{ url: `${url}/rpc`, protocolBinding: "JSONRPC", protocolVersion: "1.0" }];
  return { ...fullCard(), supportedInterfaces };
}

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
      databaseUrlVariable: "DATABASE_URL",
    },
    systemRandom,
  );
  for (const [name, text] of Object.entries(files)) writeFile(join(directory, name), text);
  const key = await testKey("key-1");
  const cards = await httpServer(t);
  cards.answer = json(bytesOf(signedCard(key, cardAt(cards.url))));
  writeFile(join(directory, "agents.yaml"), agentsYaml({ docs: { key, cardUrl: `${cards.url}/card` } }));
  const config = join(directory, "bridge.yaml");
  const problems = async () =>
    (await examineBridge(config, systemClock)).filter(({ state }) => state === "failing");
  return { server, directory, config, problems, cards };
}

describe("doctor", () => {
  it("reports no problem, without a connection to the database, when folder and homeserver are well, and a stopped bridge as not known", async (t) => {
    const { server, directory, config } = await fixture(t);
    const loaded = loadBridgeConfig(config);
    const [asToken, hsToken] = [loaded.appservice.asToken, loaded.appservice.hsToken].map((one) =>
      readSecret(one, directory),
    );
    assert.ok(asToken !== undefined && hsToken !== undefined);
    writeFile(join(directory, "registration.yaml"), renderRegistration(loaded, { asToken, hsToken }));
    const findings = await examineBridge(config, systemClock);
    assert.deepEqual(
      findings.map(({ name, state }) => [name, state]),
      [
        ["configuration", "ok"],
        ["secrets", "ok"],
        ["agents", "ok"],
        ["encryption", "ok"],
        ["registration", "ok"],
        ["homeserver_reachable", "ok"],
        ["token_accepted", "ok"],
        ["bridge", "not_known"],
      ],
    );
    assert.doesNotMatch(JSON.stringify(findings), new RegExp(`${asToken}|${hsToken}`));
    assert.equal(
      server.requests.some(({ path }) => path.includes("register")),
      false,
      "nothing is made",
    );
  });

  it("each problem is reported with its hint, and hides no other", async (t) => {
    const { config, server, directory, problems } = await fixture(t);
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
      ["agent docs", "registration", "token_accepted"],
    );
    for (const { hint } of await problems()) assert.match(hint ?? "", /^[A-Z].*\.$/);

    writeFileSync(join(directory, "secrets/content-keys"), "short\n");
    assert.deepEqual(
      (await problems()).map(({ name }) => name),
      ["secrets", "agent docs"],
    );
    const last = (await examineBridge(config, systemClock)).at(-1);
    assert.deepEqual(
      [last?.name, last?.state],
      ["homeserver, bridge", "not_known"],
      "what is not looked at is said",
    );
    writeFileSync(join(directory, "bridge.yaml"), "version: 2\n");
    assert.deepEqual(
      (await problems()).map(({ name }) => name),
      ["configuration"],
    );
  });

  it("an agent counts as ok only when its card is served now, signed by its pin and names an interface that may be called, and hides no failing one", async (t) => {
    const { directory, config, cards } = await fixture(t);
    const file = join(directory, "agents.yaml");
    const agents = async () =>
      (await examineBridge(config, systemClock))
        .filter(({ name }) => name.startsWith("agent"))
        .map(({ name, state, found }) => [name, state, found.replaceAll(cards.url, "URL")]);
    const signed = "each with a card that was fetched now and is signed by its pinned key";
    assert.deepEqual(await agents(), [["agents", "ok", `1 in the file, ${signed}`]]);

    const [key, other] = [await testKey("key-1"), await testKey("key-1")];
    const card = bytesOf(signedCard(key, cardAt(cards.url)));
    const far = bytesOf(signedCard(key, fullCard()));
    cards.answer = (request, response) =>
      request.url === "/gone"
        ? response.writeHead(404).end()
        : json(request.url === "/far" ? far : card)(request, response);
    const entry = (pin: typeof key, path: string) => ({ key: pin, cardUrl: `${cards.url}/${path}` });
    const named = {
      docs: entry(key, "card"),
      far: entry(key, "far"),
      gone: entry(key, "gone"),
      other: entry(other, "card"),
    };
    writeFileSync(file, agentsYaml(named));
    assert.deepEqual(await agents(), [
      ["agents", "ok", `1 of 4 in the file, ${signed}`],
      ["agent far", "failing", "the card at URL/far names no interface that may be called"],
      ["agent gone", "failing", "no card at URL/gone: status_refused, status 404"],
      ["agent other", "failing", "the card at URL/card does not verify against its pin: signature_invalid"],
    ]);

    writeFileSync(file, agentsYaml({}));
    assert.deepEqual(await agents(), [["agents", "not_known", "none in the file: nobody can be asked"]]);
  });

  it("an agent does not count as ok when the secret of its client cannot be read, or others may read it", async (t) => {
    const { directory, problems } = await fixture(t);
    const [file, secret] = [join(directory, "agents.yaml"), join(directory, "client-secrets/docs")];
    writeFileSync(
      file,
      `${readFileSync(file, "utf8")}    credentials:
      {tokenEndpoint: "http://127.0.0.1:1", clientId: a, clientSecret: {file: client-secrets/docs}}\n`,
    );
    const found = async () => (await problems()).map((one) => [one.name, one.found]);
    assert.deepEqual(await found(), [["agent docs", `cannot read the secret file ${secret}`]]);
    writeFile(secret, "a-secret-of-the-client\n", 0o644);
    assert.deepEqual(await found(), [
      ["agent docs", `others may read the secret file ${secret} (mode 0644)`],
    ]);
    chmodSync(secret, 0o600);
    assert.deepEqual(await found(), []);
  });

  it("findings of a running bridge's /readyz are passed on", async (t) => {
    const bridge = await scriptedHomeserver(t, () => ({
      status: 503,
      body: { checks: [{ name: "database", ok: false, hint: "Start PostgreSQL." }], encryption: "refuse" },
    }));
    const { server, problems, config } = await fixture(t, Number(new URL(bridge.url).port));
    const found = [{ name: "bridge: database", state: "failing", found: "no", hint: "Start PostgreSQL." }];
    assert.deepEqual(await problems(), found);
    const text = readFileSync(config, "utf8");
    // The IPv6 form of the address that it listens on.
    writeFileSync(config, text.replace(/^(observe:\s+host: ).*$/m, '$1"::ffff:127.0.0.1"'));
    assert.deepEqual(await problems(), found);
    assert.ok(server.requests.some(({ path }) => path.endsWith("/appservice/drawbridge/ping")));
  });

  async function runningFixture(
    t: TestContext,
    checks: () => readonly object[],
    encryption = () => "refuse",
  ) {
    const bridge = await scriptedHomeserver(t, () => ({
      body: { checks: checks(), encryption: encryption() },
    }));
    const made = await fixture(t, Number(new URL(bridge.url).port));
    const doctor = async (...args: readonly string[]) =>
      await runCliHere(["doctor", "--config", made.config, ...args]);
    return { ...made, doctor };
  }

  it("each check of keys that the running bridge reports is shown, and an unknown one is not ok", async (t) => {
    const published = { name: "device_keys_published", ok: true, blocking: false, found: "yes, of 2 ghosts" };
    const delivery = { name: "keys_by_transaction", blocking: false };
    let checks: readonly object[] = [
      { name: "database", ok: true },
      published,
      { ...delivery, ok: false, known: false, found: "not found out yet", hint: "Nothing yet." },
    ];
    let mode = "on";
    const { directory, doctor } = await runningFixture(
      t,
      () => checks,
      () => mode,
    );
    const file = join(directory, "bridge.yaml");
    writeFileSync(
      file,
      `${readFileSync(file, "utf8")}\nencryption: { mode: on, storeKeys: { file: secrets/content-keys } }\n`,
    );
    const early = await doctor();
    assert.equal(early.code, ExitCode.incomplete, early.stdout + early.stderr);
    assert.match(early.stdout, /^ok {7}encryption: on$/m);
    assert.match(early.stdout, /^ok {7}bridge: running and ready$/m);
    assert.match(early.stdout, /^ok {7}bridge: device_keys_published: yes, of 2 ghosts$/m);
    assert.match(early.stdout, /^\? {8}bridge: keys_by_transaction: not found out yet\n {9}Nothing yet\.$/m);
    const listed = JSON.parse((await doctor("--json")).stdout) as { state: string; ok: boolean }[];
    for (const { state, ok } of listed) assert.equal(ok, state === "ok");

    checks = [published, { ...delivery, ok: true, found: "yes, since then" }];
    const well = await doctor();
    assert.equal(well.code, ExitCode.ok, well.stdout);
    assert.match(well.stdout, /^ok {7}bridge: keys_by_transaction: yes, since then$/m);

    for (mode of ["refuse", "devices"]) {
      const other = await doctor();
      assert.equal(other.code, ExitCode.failed, `the file says on, and the bridge was started with ${mode}`);
      assert.match(other.stdout, /^PROBLEM {2}bridge: encryption: it runs in another mode$/m);
    }
  });

  it("a missing registration file counts as ok only when the homeserver works with both tokens", async (t) => {
    const { server, doctor } = await runningFixture(t, () => [{ name: "database", ok: true }]);
    const ran = await doctor();
    assert.equal(ran.code, ExitCode.ok, ran.stdout);
    assert.match(ran.stdout, /^ok {7}registration: the homeserver has one with these tokens; no copy at /m);
    server.script = (call) =>
      call.path.endsWith("/ping") ? { status: 502, body: { errcode: "M_BAD_STATUS" } } : WELL(call);
    assert.match((await doctor()).stdout, /^\? {8}registration: no copy at /m);
  });

  it("the error names the default file and the option when no configuration exists", async (t) => {
    const cwd = temporaryFolder(t);
    for (const words of [["doctor"], ["ghost", "device", "status"], ["bridge", "registration"], ["bridge"]]) {
      const ended = await runCliHere(words, { cwd });
      assert.deepEqual([ended.code, ended.stdout], [ExitCode.usage, ""], words.join(" "));
      assert.match(
        ended.stderr,
        /^error: there is no .*\/bridge\.yaml\nhint: Name .* with --config FILE.*bridge\.yaml/,
      );
      const help = await runCliHere([...words, "--help"], { cwd });
      assert.match(
        help.stdout,
        /-c, --config <file> +the bridge's configuration \(default: "bridge\.yaml"\)/,
      );
    }
  });
});
