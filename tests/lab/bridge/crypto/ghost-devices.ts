// Ghosts' devices on a real Synapse and a database of the test's own, with the homeserver's transactions
// taken in. Invariants: what is closed and opened again finds the same tables; nothing outlives the test.
import { createServer } from "node:http";
import type { TestContext } from "node:test";
import { pino } from "pino";
import { GhostDevices } from "../../../../src/bridge/crypto/ghost-devices.ts";
import { Machines } from "../../../../src/bridge/crypto/machines.ts";
import { createNamespace } from "../../../../src/bridge/intake/namespace.ts";
import { readDevicePart } from "../../../../src/bridge/intake/transaction-extensions.ts";
import { ContentKeys } from "../../../../src/bridge/ledger/content-keys.ts";
import { createLedger, type Ledger } from "../../../../src/bridge/ledger/ledger.ts";
import type { DeviceStopReason } from "../../../../src/bridge/ledger/states.ts";
import { Ghosts } from "../../../../src/bridge/matrix/ghosts.ts";
import { Homeserver } from "../../../../src/bridge/matrix/homeserver.ts";
import { systemClock, systemRandom } from "../../../../src/domain/clock.ts";
import type { GhostMxid, RoomId } from "../../../../src/domain/identifiers.ts";
import { type TestDatabase, testDatabase } from "../../../support/database.ts";
import type { TestSynapse } from "../../../support/synapse.ts";

const storeKey = (byte: number): string => Buffer.alloc(32, byte).toString("base64");

/** One process's devices. */
export interface DeviceSide {
  readonly devices: GhostDevices;
  readonly ghosts: Ghosts;
  readonly homeserver: Homeserver;
  readonly ledger: Ledger;
  /** What was asked of the homeserver, by name, in order. */
  readonly operations: readonly string[];
  readonly stops: readonly DeviceStopReason[];
  readonly newKeys: readonly RoomId[];
  readonly logged: readonly string[];
  /** As the process's end would. */
  close(): Promise<void>;
}

export interface DeviceWorld {
  readonly database: TestDatabase;
  /** Opens the devices as a new process would; `start` also looks after them. */
  side(options?: {
    readonly keys?: string;
    readonly ghosts?: readonly GhostMxid[];
    readonly start?: boolean;
    readonly database?: TestDatabase;
  }): DeviceSide;
  /** What becomes of a transaction; 200 unless the test says otherwise. */
  answer: (body: Readonly<Record<string, unknown>>) => number;
}

export async function deviceWorld(t: TestContext, synapse: TestSynapse): Promise<DeviceWorld> {
  const sides: DeviceSide[] = [];
  // Hooks run in the order they were made: what uses the database is closed before it is dropped.
  t.after(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    for (const side of sides) await side.close();
  });
  const database = await testDatabase(t);
  const namespace = createNamespace({
    serverName: synapse.serverName,
    ghostPrefix: "agent_",
    senderLocalpart: "drawbridge",
  });

  const world: DeviceWorld = {
    database,
    answer: () => 200,
    side: (options = {}) => {
      const side = openSide(options.database ?? database, synapse, options);
      sides.push(side);
      return side;
    },
  };
  const server = createServer((request, response) => {
    const take = async () => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      const body = JSON.parse(Buffer.concat(chunks).toString() || "{}") as Record<string, unknown>;
      const status = world.answer(body);
      const current = sides.at(-1);
      if (status === 200 && current !== undefined) {
        const known = new Map(current.devices.statuses().map(({ ghost, deviceId }) => [ghost, deviceId]));
        await current.devices.receive(readDevicePart(body, namespace, known));
      }
      response.writeHead(status, { "content-type": "application/json" }).end("{}");
    };
    void take().catch(() => response.writeHead(500).end("{}"));
  });
  await new Promise<void>((resolve) => server.listen(synapse.bridge.port, "127.0.0.1", resolve));
  return world;
}

function openSide(
  database: TestDatabase,
  synapse: TestSynapse,
  options: { readonly keys?: string; readonly ghosts?: readonly GhostMxid[]; readonly start?: boolean },
): DeviceSide {
  const operations: string[] = [];
  const stops: DeviceStopReason[] = [];
  const newKeys: RoomId[] = [];
  const logged: string[] = [];
  const log = pino({ level: "debug" }, { write: (line: string) => logged.push(line) });
  const homeserver = new Homeserver({
    url: synapse.url,
    asToken: synapse.asToken,
    requestTimeoutMs: 30_000,
    clock: systemClock,
    observe: (operation) => operations.push(operation),
  });
  const ledger = createLedger(database.pool, ContentKeys.parse(storeKey(9)), {
    noticeIntervalMs: 600_000,
    roomGateMs: 60_000,
    isGhost: (user) => user.startsWith("@agent_"),
    servesEncryptedRooms: true,
  });
  const parts = { homeserver, ledger, clock: systemClock, random: systemRandom, log };
  const ghosts = new Ghosts(parts);
  const devices = new GhostDevices({
    ...parts,
    ghosts,
    machines: (onLost) =>
      new Machines({
        threads: 1,
        databaseUrl: database.url,
        storeKeys: ContentKeys.parse(options.keys ?? storeKey(1)),
        policy: { senderDevices: "allow_all", verifiedIdentities: [] },
        clock: systemClock,
        random: systemRandom,
        log,
        onLost,
      }),
    observe: {
      toDevice: () => {},
      toDeviceRefused: () => {},
      toDeviceSkipped: () => {},
      keyCatchupEnded: () => {},
      stopped: (reason) => stops.push(reason),
    },
    onNewKeys: (rooms) => newKeys.push(...rooms),
    onReady: () => {},
    serversAllowed: async () => new Set(),
    configured: async () => options.ghosts ?? [],
    owns: () => true,
  });
  if (options.start === true) devices.start();
  let closed: Promise<void> | undefined;
  const close = async () => {
    await devices.drain();
    await homeserver.close();
  };
  return {
    devices,
    ghosts,
    homeserver,
    ledger,
    operations,
    stops,
    newKeys,
    logged,
    close: () => {
      closed ??= close();
      return closed;
    },
  };
}

export const otherStoreKey = storeKey(2);
