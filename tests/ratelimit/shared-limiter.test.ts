// Gateways that share one limiter: real Envoys, a real envoyproxy/ratelimit on a real Redis, whose programs
// `./task test:ratelimit` passes on.
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, beforeEach, describe, it } from "node:test";
import { freePort } from "../../lab/ports.ts";
import { systemClock } from "../../src/domain/clock.ts";
import {
  type AgentDouble,
  AUDIENCE,
  agentDouble,
  endGateway,
  eventually,
  type TestGateway,
  type TestIssuer,
  testGateway,
  testIssuer,
} from "../support/gateway.ts";

const folder = mkdtempSync(join(tmpdir(), "drawbridge test "));
/** The service passes over paths with a space. */
const limits = mkdtempSync(join(tmpdir(), "drawbridge-limits-"));
const RPC = "/agents/docs-qa/rpc";

let redis: ChildProcess;
let service: ChildProcess;
let ports: { readonly redis: number; readonly http: number; readonly grpc: number; readonly debug: number };
let issuer: TestIssuer;
let agent: AgentDouble;
let gateways: readonly TestGateway[];

function program(name: string): string {
  const path = process.env[name];
  assert.ok(path, `${name} is not set: run ./task test:ratelimit`);
  return path;
}

function startRedis(): ChildProcess {
  return spawn(
    program("DRAWBRIDGE_TEST_REDIS"),
    ["--port", String(ports.redis), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
    { stdio: "ignore", cwd: limits },
  );
}

function startService(): ChildProcess {
  return spawn(program("DRAWBRIDGE_TEST_RATELIMIT"), [], {
    stdio: "ignore",
    cwd: limits,
    env: {
      ...{ USE_STATSD: "false", LOG_LEVEL: "warn" },
      ...{ REDIS_SOCKET_TYPE: "tcp", REDIS_TYPE: "SINGLE", REDIS_URL: `127.0.0.1:${ports.redis}` },
      ...{ RUNTIME_ROOT: limits, RUNTIME_SUBDIRECTORY: "cfg", RUNTIME_APPDIRECTORY: "config" },
      ...{ RUNTIME_IGNOREDOTFILES: "true", RUNTIME_WATCH_ROOT: "false" },
      ...{ HOST: "127.0.0.1", PORT: String(ports.http), GRPC_HOST: "127.0.0.1" },
      ...{ GRPC_PORT: String(ports.grpc), DEBUG_HOST: "127.0.0.1", DEBUG_PORT: String(ports.debug) },
    },
  });
}

async function end(child: ChildProcess | undefined): Promise<void> {
  if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGKILL");
  await ended;
}

/** Until the service has loaded quotas that hold `text`. */
async function loaded(text: string): Promise<void> {
  await eventually(`${text} in the service's configuration`, async () => {
    const answer = await fetch(`http://127.0.0.1:${ports.debug}/rlconfig`).catch(() => undefined);
    return (await answer?.text())?.includes(text) === true ? true : undefined;
  });
}

before(async () => {
  ports = {
    redis: await freePort(),
    http: await freePort(),
    grpc: await freePort(),
    debug: await freePort(),
  };
  const quotaFolder = join(limits, "cfg", "config");
  mkdirSync(quotaFolder, { recursive: true });
  redis = startRedis();
  issuer = await testIssuer(folder);
  agent = await agentDouble();
  const start = (name: string, more: object) =>
    testGateway(join(folder, name), {
      issuer: { url: issuer.url, jwksUrl: `${issuer.url}/jwks`, audience: AUDIENCE },
      limiter: { mode: "shared", address: `127.0.0.1:${ports.grpc}`, ...more },
      agents: {
        "docs-qa": {
          upstream: agent.url,
          cardPath: "/card.json",
          invokePath: RPC,
          clients: ["org-b-client", "limited-client", "changed-client"],
        },
      },
      quotas: {
        default: { perMinute: 6_000, burst: 1 },
        clients: { "limited-client": { perMinute: 6, burst: 1 } },
      },
    });
  gateways = [await start("one", { quotaFile: join(quotaFolder, "gateway.yaml") }), await start("two", {})];
  service = startService();
  await loaded("limited-client");
});
after(async () => {
  for (const gateway of gateways ?? []) await endGateway(gateway);
  await end(service);
  await end(redis);
  await agent?.close();
  await issuer?.close();
  rmSync(folder, { recursive: true, force: true });
  rmSync(limits, { recursive: true, force: true });
});
beforeEach(() => {
  agent.received.length = 0;
});

interface Answer {
  readonly status: number;
  readonly retryAfter: string | null;
}

async function call(gateway: TestGateway | undefined, azp: string | undefined): Promise<Answer> {
  assert.ok(gateway);
  const response = await fetch(gateway.url + RPC, {
    method: "POST",
    headers: { authorization: `Bearer ${await issuer.token(azp)}` },
    body: "{}",
  });
  await response.body?.cancel();
  return { status: response.status, retryAfter: response.headers.get("retry-after") };
}

/** The service counts by whole minutes: a count that would cross into the next one begins there. */
async function earlyInAMinute(): Promise<void> {
  await eventually("a new minute", () => (systemClock.now() % 60_000 < 45_000 ? true : undefined));
}

describe("shared rate limiter", () => {
  it("two gateways share one quota, and other clients go on [PLN-5]", async () => {
    await earlyInAMinute();
    const statuses: number[] = [];
    for (let i = 0; i < 5; i++) {
      for (const gateway of gateways) statuses.push((await call(gateway, "limited-client")).status);
    }
    assert.deepEqual(statuses, [200, 200, 200, 200, 200, 200, 429, 429, 429, 429]);
    assert.equal(agent.received.length, 6);
    for (const gateway of gateways) {
      assert.equal((await call(gateway, "limited-client")).retryAfter, "60");
      assert.equal((await call(gateway, "org-b-client")).status, 200);
    }
  });

  it("a changed quota reaches the service without a restart of anything [PLN-5]", async () => {
    await earlyInAMinute();
    gateways[0]?.configure((config) => ({
      ...config,
      quotas: {
        ...config.quotas,
        clients: { ...config.quotas.clients, "changed-client": { perMinute: 1, burst: 1 } },
      },
    }));
    await loaded("changed-client");
    assert.equal((await call(gateways[1], "changed-client")).status, 200);
    assert.equal((await call(gateways[0], "changed-client")).status, 429);
  });

  it("a token without azp, or of a caller not admitted, is refused before the limiter is consulted [PLN-5]", async () => {
    await end(service);
    for (const gateway of gateways) {
      // The limiter is away: whoever reached it would get 500.
      assert.equal((await call(gateway, undefined)).status, 403);
      assert.equal((await call(gateway, "stranger")).status, 403);
      assert.equal((await fetch(`${gateway.url}/card.json`)).status, 200);
    }
    service = startService();
    await loaded("limited-client");
  });

  for (const [what, stop, restart] of [
    ["service", () => end(service), () => (service = startService())],
    ["Redis", () => end(redis), () => (redis = startRedis())],
  ] as const) {
    it(`nobody passes while the limiter's ${what} is away, and every admitted caller does once it is back [PLN-5]`, async () => {
      await stop();
      for (const gateway of gateways) {
        const begun = systemClock.now();
        assert.equal((await call(gateway, "org-b-client")).status, 500);
        assert.ok(systemClock.now() - begun < 2_000, "refused in time");
      }
      assert.equal(agent.received.length, 0);
      const entry = await eventually("the refusal's line", () =>
        gateways[0]?.accessLog().includes("rate_limiter_error") === true ? true : undefined,
      );
      assert.ok(entry);
      restart();
      for (const gateway of gateways) {
        await eventually("passing again", async () =>
          (await call(gateway, "org-b-client")).status === 200 ? true : undefined,
        );
      }
    });
  }
});
