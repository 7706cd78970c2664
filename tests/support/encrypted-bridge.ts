// A whole bridge on a real Synapse, with an agent that it trusts: for tests of encrypted rooms. The
// homeserver reaches it through a proxy that can fail a transaction, or swallow it.
// Invariants: the bridge's files lie in a folder of the test's own, its tables in a database of its own, so
// that the bridge can be ended and started again on the same state; everything is gone after the test.

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { pino } from "pino";
import { stringify } from "yaml";
import { freePort } from "../../lab/ports.ts";
import { loadBridgeConfig } from "../../src/bridge/config.ts";
import { createLedgerPool } from "../../src/bridge/ledger/postgres.ts";
import { runBridge } from "../../src/bridge/process.ts";
import { type Clock, systemClock, systemRandom } from "../../src/domain/clock.ts";
import type { GhostMxid, RoomId } from "../../src/domain/identifiers.ts";
import { signedCard, testKey } from "./cards.ts";
import { testDatabase } from "./database.ts";
import { type CardOptions, cardOf } from "./delegation.ts";
import { type FaultAgent, type FaultAgentOptions, startFaultAgent } from "./fault-agent.ts";
import { type Balanced, listening, type OnTransaction, startLoadBalancer } from "./load-balancer.ts";
import type { TestSynapse, TestUser } from "./synapse.ts";
import { cliMain, type Running, start, temporaryFolder, writeFile } from "./temporary.ts";

/** A test's context, or `{ after }` from node:test for a whole file. */
type Disposer = Pick<TestContext, "after">;

export const GHOST = "@agent_docs:a.test" as GhostMxid;
const PATIENCE_MS = 60_000;
const POLL_MS = 50;

export interface EncryptedBridge {
  readonly agent: FaultAgent;
  /** The folder of its files; `bridge.log` in it when it runs as a process. */
  readonly folder: string;
  readonly configFile: string;
  /** Looks at each transaction; those that fail are answered 502, and never reach the bridge. */
  onTransaction: OnTransaction;
  /** Told of each transaction that was answered 200, after the homeserver was. */
  onAcknowledged: (body: Readonly<Record<string, unknown>>) => void;
  /** Rows of the bridge's database. */
  rows<Row = Record<string, unknown>>(sql: string, values?: unknown[]): Promise<Row[]>;
  /** Writes its configuration anew; it counts from the next start. */
  configure(encryption: Readonly<Record<string, unknown>>, limits?: Readonly<Record<string, unknown>>): void;
  /** Starts it in this process; resolves when it is ready. */
  start(): Promise<void>;
  /** Ends it in order. */
  stop(): Promise<void>;
  /** Starts it as a process of its own; resolves when it is ready. */
  spawn(): Promise<Running>;
  /**
   * Starts another process on the same database, which listens elsewhere.
   * @param ports those of an earlier one
   */
  spawnAnother(ports?: BridgePorts): Promise<AnotherBridge>;
  /** Has the homeserver reach that one, or again the first. */
  reach(another?: AnotherBridge): void;
  /**
   * Has the homeserver reach any of these in turn; what one does not answer within a second, or the time given, goes to
   * the next.
   */
  reachAny(of: readonly BridgePorts[], patienceMs?: number): void;
  /** How many requests the homeserver got an error for. */
  readonly failedRequests: () => number;
  /** What keeps it from being ready, by /readyz: the first, or another. */
  unready(of?: AnotherBridge): Promise<readonly string[]>;
  metrics(): Promise<string>;
  /** One metric's value, with its labels as they are printed. */
  metric(name: string): Promise<number>;
  /** Resolves when the ghost is in the room and the bridge knows the room. */
  settled(room: RoomId): Promise<void>;
  /** What it logged. */
  readonly logged: string[];
}

export interface BridgePorts {
  readonly listenPort: number;
  readonly observePort: number;
}

export interface AnotherBridge extends BridgePorts {
  readonly running: Running;
}

/** A homeserver as the bridge knows it. */
export type BridgedHomeserver = Pick<TestSynapse, "serverName" | "url" | "asToken" | "hsToken" | "bridge">;

export interface EncryptedBridgeOptions {
  readonly encryption?: Readonly<Record<string, unknown>>;
  readonly limits?: Readonly<Record<string, unknown>>;
  readonly agents?: readonly string[];
  /** Further fields of each agent's entry in agents.yaml. */
  readonly entry?: Readonly<Record<string, unknown>>;
  /** How its processes are started, on a configuration file; as the bridge's own program when absent. */
  readonly start?: (file: string) => Running;
  /** What its agent is beside what a test tells it. */
  readonly agent?: FaultAgentOptions;
  /** What the agent's card says. */
  readonly card?: CardOptions;
  /** A database that somebody else disposes of. */
  readonly databaseUrl?: string;
  /** Further parts of its configuration. */
  readonly config?: Readonly<Record<string, unknown>>;
  /** Of the bridge in this process. */
  readonly clock?: Clock;
}

export async function encryptedBridge(
  t: Disposer,
  synapse: BridgedHomeserver,
  options: EncryptedBridgeOptions = {},
): Promise<EncryptedBridge> {
  const startBridge = options.start ?? startProgram;
  let running: { readonly stop: AbortController; readonly ended: Promise<void> } | undefined;
  const children: Running[] = [];
  const stop = async () => {
    for (const child of children.splice(0)) {
      child.child.kill("SIGKILL");
      await child.finished;
    }
    const { stop: end, ended } = running ?? {};
    running = undefined;
    end?.abort();
    await ended;
  };
  // Before its database goes: what is registered first is done first.
  t.after(stop);
  const folder = temporaryFolder(t);
  const { url, pool } = options.databaseUrl ? givenDatabase(t, options.databaseUrl) : await testDatabase(t);
  const agent = await startFaultAgent(t, options.agent);
  const key = await testKey("key-1");
  const card = JSON.stringify(signedCard(key, cardOf(agent.url, options.card)));
  const cardServer = createServer((_request, response) => {
    response.writeHead(200, { "content-type": "application/json" }).end(card);
  });
  const cardPort = await listening(t, cardServer);

  const listenPort = await freePort();
  const observePort = await freePort();
  const write = (name: string, content: string) => writeFile(join(folder, name), content, 0o600);
  const secret = () => systemRandom.bytes(32).toString("base64");
  write("as-token", synapse.asToken);
  write("hs-token", synapse.hsToken);
  write("database-url", url);
  write("content-keys", secret());
  write("store-keys", secret());
  const entry = {
    cardUrl: `http://127.0.0.1:${cardPort}/card`,
    allowedOrigins: [new URL(agent.url).origin],
    cardIdentity: { keyId: key.keyId, jwk: key.jwk },
    allowedServers: ["a.test"],
    allowedSenders: ["*:a.test"],
    rate: { perMinute: 6_000, burst: 1_000 },
    ...options.entry,
  };
  const names = options.agents ?? ["docs"];
  write(
    "agents.yaml",
    stringify(
      { version: 1, agents: Object.fromEntries(names.map((one) => [one, entry])) },
      { aliasDuplicateObjects: false },
    ),
  );
  const configFile = join(folder, "bridge.yaml");
  const configure: EncryptedBridge["configure"] = (encryption, limits = {}) =>
    write(
      "bridge.yaml",
      stringify({
        version: 1,
        homeserver: { serverName: synapse.serverName, url: synapse.url },
        appservice: {
          url: `http://127.0.0.1:${synapse.bridge.port}`,
          asToken: { file: "as-token" },
          hsToken: { file: "hs-token" },
        },
        listen: { port: listenPort },
        observe: { port: observePort },
        database: { url: { file: "database-url" } },
        contentKeys: { file: "content-keys" },
        encryption: { mode: "on", storeKeys: { file: "store-keys" }, ...encryption },
        limits: { drain: "2s", ...limits },
        ...options.config,
      }),
    );
  configure(options.encryption ?? {}, options.limits);

  const logged: string[] = [];
  const reached: Balanced = {
    ...{ ports: [listenPort], turn: 0, failed: 0 },
    onAcknowledged: (body) => bridge.onAcknowledged(body),
  };
  const bridge: EncryptedBridge = {
    agent,
    folder,
    configFile,
    logged,
    configure,
    onTransaction: () => "pass",
    onAcknowledged: () => {},
    rows: async (sql, values = []) => (await pool.query(sql, values)).rows,
    start: async () => {
      const end = new AbortController();
      const log = pino({ level: "debug" }, { write: (line: string) => logged.push(line) });
      const config = loadBridgeConfig(configFile);
      const clock = options.clock ?? systemClock;
      const ended = runBridge({ config, clock, random: systemRandom, log, stop: end.signal });
      ended.catch(() => undefined);
      running = { stop: end, ended };
      await Promise.race([ready(observePort), ended]);
    },
    stop,
    spawn: async () => {
      const child = startBridge(configFile);
      children.push(child);
      await ready(observePort);
      return child;
    },
    spawnAnother: async (given) => {
      const { listenPort: listens, observePort: observes } = given ?? {
        listenPort: await freePort(),
        observePort: await freePort(),
      };
      const ports = { listenPort: listens, observePort: observes };
      const other = readFileSync(configFile, "utf8")
        .replace(String(listenPort), String(ports.listenPort))
        .replace(String(observePort), String(ports.observePort));
      write(`bridge-${ports.listenPort}.yaml`, other);
      const file = join(folder, `bridge-${ports.listenPort}.yaml`);
      const running = startBridge(file);
      children.push(running);
      return { running, ...ports };
    },
    reach: (another) => {
      reached.ports = [another?.listenPort ?? listenPort];
    },
    reachAny: (of, patienceMs) => {
      reached.ports = of.map((one) => one.listenPort);
      reached.patienceMs = patienceMs;
    },
    failedRequests: () => reached.failed,
    unready: async (of) => {
      const answer = await fetch(`http://127.0.0.1:${of?.observePort ?? observePort}/readyz`);
      const { checks } = (await answer.json()) as {
        checks: readonly { name: string; ok: boolean; blocking?: boolean }[];
      };
      return checks.filter(({ ok, blocking }) => !ok && blocking !== false).map(({ name }) => name);
    },
    metrics: async () => await (await fetch(`http://127.0.0.1:${observePort}/metrics`)).text(),
    metric: async (name) => {
      const line = (await bridge.metrics()).split("\n").find((one) => one.startsWith(`${name} `));
      if (line === undefined) throw new Error(`no metric ${name}`);
      return Number(line.slice(name.length + 1));
    },
    settled: async (room) =>
      await eventually("the ghost is in the room", async () => {
        const found = await bridge.rows(
          "SELECT FROM bridge_ghost_rooms WHERE room_id = $1 AND membership = 'join' AND task IS NULL",
          [room],
        );
        return found.length > 0 ? true : undefined;
      }).then(() => undefined),
  };
  await startLoadBalancer(t, synapse.bridge.port, reached, (body) => bridge.onTransaction(body));
  return bridge;
}

function givenDatabase(t: Disposer, url: string) {
  const pool = createLedgerPool({ connectionString: url, max: 4 });
  pool.on("error", () => {});
  t.after(() => pool.end());
  return { url, pool };
}

/** Not by its launcher: a signal, SIGKILL and SIGSTOP above all, has to reach the bridge itself. */
const startProgram = (file: string) => start(process.execPath, [cliMain(), "bridge", "--config", file]);

async function ready(observePort: number): Promise<void> {
  await eventually("the bridge is ready", async () => {
    const answer = await fetch(`http://127.0.0.1:${observePort}/readyz`);
    if (answer.ok) return true;
    throw new Error(await answer.text());
  });
}

/** Polls until there is something; what a poll throws is shown when the time is up. */
export async function eventually<T>(
  what: string,
  poll: () => Promise<T | undefined>,
  patienceMs = PATIENCE_MS,
): Promise<T> {
  const deadline = systemClock.now() + patienceMs;
  let last: unknown;
  while (systemClock.now() < deadline) {
    try {
      const found = await poll();
      if (found !== undefined) return found;
    } catch (error) {
      last = error;
    }
    await systemClock.sleep(POLL_MS);
  }
  throw new Error(`waited in vain: ${what}`, { cause: last });
}

/** To-device messages of a transaction, under the name a homeserver gives them. */
export function toDeviceOf(body: Readonly<Record<string, unknown>>): readonly { readonly type?: unknown }[] {
  return (body["de.sorunome.msc2409.to_device"] ?? body["to_device"] ?? []) as { type?: unknown }[];
}

/** A question to the ghost. */
export function questionTo(body: string, ghost = GHOST) {
  return { msgtype: "m.text", body, "m.mentions": { user_ids: [ghost] } };
}

/** The device ID of the ghost, as the homeserver publishes it. */
export async function devicesOf(user: TestUser, ghost = GHOST): Promise<readonly string[]> {
  const answer = await user.call("POST", "/keys/query", { device_keys: { [ghost]: [] } });
  const keys = answer["device_keys"] as Record<string, Record<string, unknown>> | undefined;
  return Object.keys(keys?.[ghost] ?? {});
}
