// A whole bridge that starts beside another: what it finds out before it asks, and what it leaves alone.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { pino } from "pino";
import { stringify } from "yaml";
import { freePort } from "../../../lab/ports.ts";
import { loadBridgeConfig } from "../../../src/bridge/config.ts";
import type { Readiness } from "../../../src/bridge/health/health-server.ts";
import { Leadership } from "../../../src/bridge/leadership.ts";
import { openLeadershipConnection } from "../../../src/bridge/ledger/leadership.ts";
import { runBridge } from "../../../src/bridge/process.ts";
import { systemClock, systemRandom } from "../../../src/domain/clock.ts";
import { ledgerFixture } from "../../support/ledger.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { type Script, scriptedHomeserver, WELL } from "../../support/scripted-homeserver.ts";
import { temporaryFolder, writeFile } from "../../support/temporary.ts";

const STEP_MS = 250;
const ANSWERS_MS = 4;

/** A homeserver that knows the bridge. */
const ACCEPTS: Script = (request) => {
  if (request.path.endsWith("/versions")) return { body: { versions: ["v1.11"] } };
  if (request.path.endsWith("/whoami")) return { body: { user_id: "@drawbridge:a.test" } };
  return WELL(request);
};

/** One that has another token for it. */
const KNOWS_IT_NOT: Script = (request) =>
  request.path.endsWith("/whoami") ? { status: 401, body: { errcode: "M_UNKNOWN_TOKEN" } } : ACCEPTS(request);

async function taken(t: TestContext, port: number): Promise<Server> {
  const server = createServer();
  t.after(() => server.close());
  await new Promise<void>((resolve) => {
    server.listen(port, "127.0.0.1", resolve);
  });
  return server;
}

/** An older bridge that serves, and a newer one on the same database that can be started. */
async function fixture(
  t: TestContext,
  { older, mode = "refuse" }: { older: "of the same port" | "of another port"; mode?: "refuse" | "devices" },
) {
  // The database is the last to go.
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
  const serving = new Leadership({
    open: () =>
      openLeadershipConnection(url, { clock, port: older === "of the same port" ? listen : observe }),
    mode: "alone",
    patienceMs: 60_000,
    clock,
    log,
  });
  cleanups.push(() => serving.end());
  assert.ok(await serving.begin(true, new AbortController().signal));
  const asked = async () => Number((await rows("SELECT asked FROM bridge_leadership"))[0]?.["asked"]);
  const checks = async () => {
    const answer = await fetch(`http://127.0.0.1:${observe}/readyz`).catch(() => undefined);
    return ((await answer?.json()) as { checks: readonly Readiness[] } | undefined)?.checks ?? [];
  };
  return {
    clock,
    rows,
    homeserver,
    listen,
    serving,
    auditFile: join(folder, "audit.jsonl"),
    asked,
    checks,
    /** Whether it has the place; undefined when it says nothing yet. */
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
    // Statements are under way, on connections of their own.
    await systemClock.sleep(ANSWERS_MS);
  }
  return await holds();
}

describe("standby", () => {
  it("a bridge whose port a foreign program has ends before it asks, and disturbs nobody [ENC-2]", async (t) => {
    const { clock, listen, serving, asked, start } = await fixture(t, { older: "of another port" });
    await taken(t, listen);
    const before = await asked();
    const running = start();
    assert.ok(await until(clock, async () => running.isOver));
    assert.equal(await running.outcome, `cannot listen on 127.0.0.1:${listen}`);
    assert.equal(await asked(), before);
    assert.equal(serving.handOver.aborted, false);
  });

  it("a bridge takes over the port of the one before it, even if that is freed a little late [ENC-2]", async (t) => {
    const { clock, listen, serving, start, readiness } = await fixture(t, { older: "of the same port" });
    const port = await taken(t, listen);
    const running = start();
    assert.ok(await until(clock, async () => serving.handOver.aborted));
    await serving.end();
    assert.ok(await until(clock, async () => (await readiness()) === true));
    await until(clock, async () => false, 5_000);
    assert.equal(running.isOver, false);
    await new Promise((resolve) => port.close(resolve));
    const answers = async () =>
      (await fetch(`http://127.0.0.1:${listen}/`).catch(() => undefined))?.status !== undefined;
    assert.ok(await until(clock, answers));
  });

  it("a bridge that ends without having served leaves the audit file to the one that serves", async (t) => {
    const { clock, rows, serving, start, readiness, auditFile } = await fixture(t, {
      older: "of another port",
    });
    await rows(
      "INSERT INTO bridge_audit (schema, record, created_at) VALUES ('svc.agent_card.v1', '{}', now())",
    );
    const running = start();
    assert.ok(await until(clock, async () => serving.handOver.aborted && (await readiness()) === false));
    running.stop.abort();
    assert.ok(await until(clock, async () => running.isOver));
    assert.equal(await running.outcome, "ended");
    assert.equal(existsSync(auditFile) ? readFileSync(auditFile, "utf8") : "", "");
    assert.deepEqual(await rows("SELECT count(*)::int AS n FROM bridge_audit WHERE exported_at IS NULL"), [
      { n: 1 },
    ]);
  });

  it("a bridge that the homeserver does not accept asks nobody to hand over, until it is accepted [ENC-2]", async (t) => {
    const { clock, homeserver, serving, asked, start, checks, readiness } = await fixture(t, {
      older: "of another port",
      mode: "devices",
    });
    homeserver.script = KNOWS_IT_NOT;
    const before = await asked();
    const running = start();
    const refused = async () => (await checks()).find(({ name }) => name === "token_accepted");
    assert.ok(await until(clock, async () => (await refused()) !== undefined));
    assert.equal(await until(clock, async () => (await asked()) !== before, 30_000), false);
    assert.equal(serving.handOver.aborted, false);
    const { ok, hint } = (await refused()) ?? {};
    assert.equal(ok, false);
    assert.match(hint ?? "", /does not accept the as_token/);
    assert.equal(running.isOver, false);

    homeserver.script = ACCEPTS;
    assert.ok(await until(clock, async () => serving.handOver.aborted));
    assert.deepEqual(
      homeserver.seen.filter(({ method, query }) => method !== "GET" || query.has("user_id")),
      [],
      "nothing is written, and no ghost is touched, beside a bridge that serves",
    );
    await serving.end();
    assert.ok(await until(clock, async () => (await readiness()) === true));
  });

  it("a bridge with none beside it begins though its homeserver does not answer", async (t) => {
    const { clock, homeserver, serving, asked, start, readiness } = await fixture(t, {
      older: "of another port",
      mode: "devices",
    });
    homeserver.script = () => "reset";
    await serving.end();
    const before = await asked();
    start();
    assert.ok(await until(clock, async () => (await readiness()) === true));
    assert.equal(await asked(), before + 1, "it did not stand in line first");
  });

  it("a bridge that waits for a homeserver that hangs ends when it is told to", async (t) => {
    const { clock, homeserver, asked, start } = await fixture(t, {
      older: "of another port",
      mode: "devices",
    });
    homeserver.script = () => "hang";
    const before = await asked();
    const running = start();
    assert.ok(await until(clock, async () => homeserver.seen.length > 0));
    running.stop.abort();
    assert.ok(await until(clock, async () => running.isOver));
    assert.equal(await running.outcome, "ended");
    assert.equal(await asked(), before);
  });
});
