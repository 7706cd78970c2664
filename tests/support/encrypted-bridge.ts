// A whole bridge on a real Synapse, with an agent that it trusts: for tests of encrypted rooms. The
// homeserver reaches it through a proxy that can fail a transaction, or swallow it.
// Invariants: the bridge's files lie in a folder of the test's own, its tables in a database of its own, so
// that the bridge can be ended and started again on the same state; everything is gone after the test.

import { readFileSync } from "node:fs";
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  request,
  type ServerResponse,
} from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { pino } from "pino";
import { stringify } from "yaml";
import { freePort } from "../../lab/ports.ts";
import { loadBridgeConfig } from "../../src/bridge/config.ts";
import { runBridge } from "../../src/bridge/process.ts";
import { systemClock, systemRandom } from "../../src/domain/clock.ts";
import type { GhostMxid, RoomId } from "../../src/domain/identifiers.ts";
import { signedCard, testKey } from "./cards.ts";
import { testDatabase } from "./database.ts";
import { cardOf } from "./delegation.ts";
import { type FaultAgent, startFaultAgent } from "./fault-agent.ts";
import type { TestSynapse, TestUser } from "./synapse.ts";
import { CLI_MAIN, type Running, start, temporaryFolder, writeFile } from "./temporary.ts";

/** A test's context, or `{ after }` from node:test for a whole file. */
type Disposer = Pick<TestContext, "after">;

export const GHOST = "@agent_docs:a.test" as GhostMxid;
const PATIENCE_MS = 60_000;
const POLL_MS = 50;

/** What becomes of a transaction on its way to the bridge. */
export type OnTransaction = (body: Readonly<Record<string, unknown>>) => "pass" | "fail";

export interface EncryptedBridge {
  readonly agent: FaultAgent;
  /** The folder of its files; `bridge.log` in it when it runs as a process. */
  readonly folder: string;
  readonly configFile: string;
  /** Looks at each transaction; those that fail are answered 502, and never reach the bridge. */
  onTransaction: OnTransaction;
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
  /** Has the homeserver reach any of these in turn; what one does not answer within a second goes to the next. */
  reachAny(of: readonly BridgePorts[]): void;
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

export interface EncryptedBridgeOptions {
  readonly encryption?: Readonly<Record<string, unknown>>;
  readonly limits?: Readonly<Record<string, unknown>>;
  readonly agents?: readonly string[];
}

export async function encryptedBridge(
  t: Disposer,
  synapse: TestSynapse,
  options: EncryptedBridgeOptions = {},
): Promise<EncryptedBridge> {
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
  const { url, pool } = await testDatabase(t);
  const agent = await startFaultAgent(t);
  const key = await testKey("key-1");
  const card = JSON.stringify(signedCard(key, cardOf(agent.url)));
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
      }),
    );
  configure(options.encryption ?? {}, options.limits);

  const logged: string[] = [];
  const reached: Reached = { ports: [listenPort], turn: 0, failed: 0 };
  const bridge: EncryptedBridge = {
    agent,
    folder,
    configFile,
    logged,
    configure,
    onTransaction: () => "pass",
    rows: async (sql, values = []) => (await pool.query(sql, values)).rows,
    start: async () => {
      const end = new AbortController();
      const log = pino({ level: "debug" }, { write: (line: string) => logged.push(line) });
      const config = loadBridgeConfig(configFile);
      const ended = runBridge({ config, clock: systemClock, random: systemRandom, log, stop: end.signal });
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
    reachAny: (of) => {
      reached.ports = of.map((one) => one.listenPort);
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
  await proxy(t, synapse.bridge.port, reached, bridge);
  return bridge;
}

/** Not by its launcher: a signal, SIGKILL and SIGSTOP above all, has to reach the bridge itself. */
const startBridge = (file: string) => start(process.execPath, [CLI_MAIN, "bridge", "--config", file]);

async function ready(observePort: number): Promise<void> {
  await eventually("the bridge is ready", async () => {
    const answer = await fetch(`http://127.0.0.1:${observePort}/readyz`);
    if (answer.ok) return true;
    throw new Error(await answer.text());
  });
}

/** Looks until there is something; what a look throws is shown when the time is up. */
export async function eventually<T>(
  what: string,
  look: () => Promise<T | undefined>,
  patienceMs = PATIENCE_MS,
): Promise<T> {
  const deadline = systemClock.now() + patienceMs;
  let last: unknown;
  while (systemClock.now() < deadline) {
    try {
      const found = await look();
      if (found !== undefined) return found;
    } catch (error) {
      last = error;
    }
    await systemClock.sleep(POLL_MS);
  }
  throw new Error(`waited in vain: ${what}`, { cause: last });
}

/** Where the proxy passes requests on to. */
interface Reached {
  ports: readonly number[];
  turn: number;
  failed: number;
}

const REDISPATCH_AFTER_MS = 1_000;

/** Stands where the homeserver looks for the bridge. */
async function proxy(
  t: Disposer,
  port: number,
  reached: Reached,
  bridge: Pick<EncryptedBridge, "onTransaction">,
): Promise<void> {
  const server = createServer((incoming, outgoing) => {
    void forward(incoming, outgoing, reached, bridge).catch(() => outgoing.destroy());
  });
  await listening(t, server, port);
}

async function forward(
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  reached: Reached,
  bridge: Pick<EncryptedBridge, "onTransaction">,
): Promise<void> {
  const chunks: Buffer[] = [];
  for await (const chunk of incoming) chunks.push(chunk as Buffer);
  const body = Buffer.concat(chunks);
  const isTransaction = incoming.url?.includes("/transactions/") === true;
  if (isTransaction && bridge.onTransaction(JSON.parse(body.toString())) === "fail") {
    outgoing.writeHead(502).end("{}");
    return;
  }
  const { ports } = reached;
  // Only a request that could go to another process is given up.
  const patienceMs = ports.length > 1 ? REDISPATCH_AFTER_MS : PATIENCE_MS;
  const first = reached.turn++;
  for (let tried = 0; tried < 3 * ports.length; tried++) {
    const port = ports[(first + tried) % ports.length] ?? 0;
    const answer = await attempt(incoming, body, port, patienceMs).catch(() => undefined);
    if (answer === undefined && ports.length > 1) {
      await systemClock.sleep(POLL_MS);
      continue;
    }
    if (answer === undefined || answer.status >= 500) reached.failed += 1;
    outgoing.writeHead(answer?.status ?? 502, answer?.headers).end(answer?.body ?? "{}");
    return;
  }
  reached.failed += 1;
  outgoing.writeHead(502).end("{}");
}

/** Rejects when the process does not answer in time. */
async function attempt(
  { method, url: path, headers }: IncomingMessage,
  body: Buffer,
  port: number,
  patienceMs: number,
): Promise<{ readonly status: number; readonly headers: IncomingHttpHeaders; readonly body: Buffer }> {
  const signal = AbortSignal.timeout(patienceMs);
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    const passed = request({ host: "127.0.0.1", port, method, path, headers, signal }, resolve);
    passed.on("error", reject);
    passed.end(body);
  });
  const chunks: Buffer[] = [];
  for await (const chunk of answer) chunks.push(chunk as Buffer);
  return { status: answer.statusCode ?? 502, headers: answer.headers, body: Buffer.concat(chunks) };
}

async function listening(t: Disposer, server: ReturnType<typeof createServer>, port = 0): Promise<number> {
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  t.after(
    () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  );
  return (server.address() as AddressInfo).port;
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
