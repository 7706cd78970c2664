// A whole bridge that starts beside a leader: what it checks before it requests leadership.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { pino } from "pino";
import { stringify } from "yaml";
import { freePort } from "../../../lab/ports.ts";
import { loadBridgeConfig } from "../../../src/bridge/config.ts";
import type { Readiness } from "../../../src/bridge/health/observe-server.ts";
import { Leadership } from "../../../src/bridge/leadership.ts";
import { openLeadershipConnection } from "../../../src/bridge/ledger/leadership.ts";
import { runBridge } from "../../../src/bridge/process.ts";
import { systemClock, systemRandom } from "../../../src/domain/clock.ts";
import { type Script, scriptedHomeserver, WELL } from "../../support/http-server.ts";
import { ledgerFixture } from "../../support/ledger.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { temporaryFolder, writeFile } from "../../support/temporary.ts";

const STEP_MS = 250;
const ANSWERS_MS = 4;

/** A homeserver that accepts the bridge's token. */
const ACCEPTS: Script = (request) => {
  if (request.path.endsWith("/versions")) return { body: { versions: ["v1.11"] } };
  if (request.path.endsWith("/whoami")) return { body: { user_id: "@drawbridge:a.test" } };
  return WELL(request);
};

/** One that has another token for the bridge. */
const REFUSES: Script = (request) =>
  request.path.endsWith("/whoami") ? { status: 401, body: { errcode: "M_UNKNOWN_TOKEN" } } : ACCEPTS(request);

async function taken(t: TestContext, port: number): Promise<Server> {
  const server = createServer();
  t.after(() => server.close());
  await new Promise<void>((resolve) => {
    server.listen(port, "127.0.0.1", resolve);
  });
  return server;
}

/** An older bridge that leads, and a newer one on the same database that a test can start. */
async function fixture(
  t: TestContext,
  { older, mode = "refuse" }: { older: "of the same port" | "of another port"; mode?: "refuse" | "devices" },
) {
  // The database is dropped last.
  const cleanups: (() => Promise<unknown>)[] = [];
  t.after(async () => {
    for (const clean of cleanups.toReversed()) await clean();
  });
  const homeserver = await scriptedHomeserver(t, ACCEPTS);
  const { url, rows } = await ledgerFixture(t);
  const folder = temporaryFolder(t);
  const [listen, observe] = [await freePort(), await freePort()];
  const secret = () => systemRandom.bytes(32).toString("base64");
  for (const name of ["as-token", "hs-token", "content-keys", "store-keys"])
    writeFile(join(folder, name), secret(), 0o600);
  writeFile(join(folder, "database-url"), url, 0o600);
  writeFile(join(folder, "agents.yaml"), stringify({ version: 1, agents: {} }));
  writeFile(
    join(folder, "bridge.yaml"),
    stringify({
      version: 1,
      homeserver: { serverName: "a.test", url: homeserver.url },
      appservice: {
        url: `http://127.0.0.1:${listen}`,
        asToken: { file: "as-token" },
        hsToken: { file: "hs-token" },
      },
      listen: { port: listen },
      observe: { port: observe },
      database: { url: { file: "database-url" } },
      contentKeys: { file: "content-keys" },
      encryption: { mode, ...(mode === "devices" && { storeKeys: { file: "store-keys" } }) },
    }),
  );
  const clock = new ManualClock(Date.UTC(2026, 0, 1));
  const log = pino({ level: "silent" });
  const leader = new Leadership({
    open: () =>
      openLeadershipConnection(url, { clock, port: older === "of the same port" ? listen : observe }),
    mode: "exclusive",
    handOverTimeoutMs: 60_000,
    clock,
    log,
  });
  cleanups.push(() => leader.resign());
  assert.ok(await leader.acquire("request", new AbortController().signal));
  const requests = async () =>
    Number((await rows("SELECT requested FROM bridge_leadership"))[0]?.["requested"]);
  const checks = async () => {
    const answer = await fetch(`http://127.0.0.1:${observe}/readyz`).catch(() => undefined);
    return ((await answer?.json()) as { checks: readonly Readiness[] } | undefined)?.checks ?? [];
  };
  return {
    clock,
    rows,
    homeserver,
    listen,
    leader,
    auditFile: join(folder, "audit.jsonl"),
    requests,
    checks,
    /** Whether it leads; undefined before it listens. */
    readiness: async () => (await checks()).find(({ name }) => name === "leadership")?.ok,
    start: () => {
      const stop = new AbortController();
      const config = loadBridgeConfig(join(folder, "bridge.yaml"));
      const ended = runBridge({ config, clock, random: systemRandom, log, stop: stop.signal });
      const outcome = ended.then(
        () => "ended",
        (error: Error) => error.message,
      );
      const running = { isOver: false, outcome, stop };
      void outcome.then(() => {
        running.isOver = true;
      });
      cleanups.push(async () => {
        stop.abort();
        await until(clock, async () => running.isOver);
      });
      return running;
    },
  };
}

async function until(clock: ManualClock, holds: () => Promise<boolean>, mostMs = 60_000): Promise<boolean> {
  for (let passed = 0; passed < mostMs; passed += STEP_MS) {
    if (await holds()) return true;
    await clock.advance(STEP_MS);
    // Real time in which the database answers.
    await systemClock.sleep(ANSWERS_MS);
  }
  return await holds();
}

describe("a bridge beside a leader", () => {
  it("a bridge ends without a request when a foreign program has its port [ENC-2]", async (t) => {
    const { clock, listen, leader, requests, start } = await fixture(t, { older: "of another port" });
    await taken(t, listen);
    const before = await requests();
    const running = start();
    assert.ok(await until(clock, async () => running.isOver));
    assert.equal(await running.outcome, `cannot listen on 127.0.0.1:${listen}`);
    assert.equal(await requests(), before);
    assert.equal(leader.handOver.aborted, false);
  });

  it("a bridge takes over the port of the leader before it, even when the port is freed late [ENC-2]", async (t) => {
    const { clock, listen, leader, start, readiness } = await fixture(t, { older: "of the same port" });
    const port = await taken(t, listen);
    const running = start();
    assert.ok(await until(clock, async () => leader.handOver.aborted));
    await leader.resign();
    assert.ok(await until(clock, async () => (await readiness()) === true));
    await until(clock, async () => false, 5_000);
    assert.equal(running.isOver, false);
    await new Promise((resolve) => port.close(resolve));
    const answers = async () =>
      (await fetch(`http://127.0.0.1:${listen}/`).catch(() => undefined))?.status !== undefined;
    assert.ok(await until(clock, answers));
  });

  it("a bridge that ends without having led leaves the audit file to the leader", async (t) => {
    const { clock, rows, leader, start, readiness, auditFile } = await fixture(t, {
      older: "of another port",
    });
    await rows(
      "INSERT INTO bridge_audit (schema, record, created_at) VALUES ('svc.agent_card.v1', '{}', now())",
    );
    const running = start();
    assert.ok(await until(clock, async () => leader.handOver.aborted && (await readiness()) === false));
    running.stop.abort();
    assert.ok(await until(clock, async () => running.isOver));
    assert.equal(await running.outcome, "ended");
    assert.equal(existsSync(auditFile) ? readFileSync(auditFile, "utf8") : "", "");
    assert.deepEqual(await rows("SELECT count(*)::int AS n FROM bridge_audit WHERE exported_at IS NULL"), [
      { n: 1 },
    ]);
  });

  it("a bridge makes no request until the homeserver accepts its token [ENC-2]", async (t) => {
    const { clock, homeserver, leader, requests, start, checks, readiness } = await fixture(t, {
      older: "of another port",
      mode: "devices",
    });
    homeserver.script = REFUSES;
    const before = await requests();
    const running = start();
    const refused = async () => (await checks()).find(({ name }) => name === "token_accepted");
    assert.ok(await until(clock, async () => (await refused()) !== undefined));
    assert.equal(await until(clock, async () => (await requests()) !== before, 30_000), false);
    assert.equal(leader.handOver.aborted, false);
    const { ok, hint } = (await refused()) ?? {};
    assert.equal(ok, false);
    assert.match(hint ?? "", /does not accept the as_token/);
    assert.equal(running.isOver, false);

    homeserver.script = ACCEPTS;
    assert.ok(await until(clock, async () => leader.handOver.aborted));
    assert.deepEqual(
      homeserver.seen.filter(({ method, query }) => method !== "GET" || query.has("user_id")),
      [],
      "a standby writes nothing to the homeserver and acts as no ghost",
    );
    await leader.resign();
    assert.ok(await until(clock, async () => (await readiness()) === true));
  });

  it("a bridge without another beside it leads although its homeserver does not answer", async (t) => {
    const { clock, homeserver, leader, requests, start, readiness } = await fixture(t, {
      older: "of another port",
      mode: "devices",
    });
    homeserver.script = () => "reset";
    await leader.resign();
    const before = await requests();
    start();
    assert.ok(await until(clock, async () => (await readiness()) === true));
    assert.equal(await requests(), before + 1, "it made a request instead of waiting for a vacancy");
  });

  it("a bridge that waits for a hanging homeserver ends when it is stopped", async (t) => {
    const { clock, homeserver, requests, start } = await fixture(t, {
      older: "of another port",
      mode: "devices",
    });
    homeserver.script = () => "hang";
    const before = await requests();
    const running = start();
    assert.ok(await until(clock, async () => homeserver.seen.length > 0));
    running.stop.abort();
    assert.ok(await until(clock, async () => running.isOver));
    assert.equal(await running.outcome, "ended");
    assert.equal(await requests(), before);
  });
});
