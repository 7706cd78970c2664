// Ghosts' machines: room keys made durable, and events decrypted, against the bare OlmMachine called directly
// in one thread, with its databases in memory, encrypted as ours are. Both have the same work to do: the same
// sender shares each key with both devices. One key is taken in at a time; events come fifty at a time, as in
// a busy transaction. Beside it stands the library's other store, which nothing can make durable.
import "fake-indexeddb/auto";
import { StoreHandle } from "@matrix-org/matrix-sdk-crypto-wasm";
import { Pool } from "pg";
import { pino } from "pino";
import type { EncryptedRoomEvent } from "../src/bridge/crypto/decrypt-event.ts";
import { Machines } from "../src/bridge/crypto/machines.ts";
import { ContentKeys } from "../src/bridge/ledger/content-keys.ts";
import { migrate } from "../src/bridge/ledger/migrate.ts";
import { systemClock, systemRandom } from "../src/domain/clock.ts";
import { GhostSide, KeyServer, Person } from "../tests/support/crypto-world.ts";
import type { Bench, BenchContext } from "./bench.ts";
import { createDatabase } from "./support/create-database.ts";
import { median } from "./support/measure.ts";
import { size } from "./support/size.ts";

const ROUNDS = size(5, 1);
const SESSIONS = size(100, 10);
const EVENTS = size(400, 50);
const IN_FLIGHT = 50;
/** Steps of one side before the other's turn. */
const TURN = 50;
const ALICE = "@alice:a.test";
const BARE = "@bare:a.test";
const VOLATILE = "@volatile:a.test";
const GHOSTS = ["@agent_one:a.test", "@agent_two:a.test"] as const;

type Json = Record<string, unknown>;

function machines(databaseUrl: string, threads: number): Machines {
  return new Machines({
    threads,
    databaseUrl,
    storeKeys: ContentKeys.parse(Buffer.alloc(32, 1).toString("base64")),
    policy: { senderDevices: "allow_all", verifiedIdentities: [] },
    clock: systemClock,
    random: systemRandom,
    log: pino({ level: "silent" }),
    onLost: (ghost, why) => {
      throw new Error(`${ghost}: ${why}`);
    },
  });
}

interface Side {
  /** Steps that are under way at a time. */
  readonly inFlight: number;
  /** Whether the next begins where one ends, not where all have ended. */
  readonly isSteady?: boolean;
  readonly step: (index: number) => Promise<unknown>;
}

/** Steps a second of each side; they take turns, so that other work on the machine meets all alike. */
async function inTurns<Name extends string>(
  count: number,
  sides: Readonly<Record<Name, Side>>,
  perTurn = TURN,
): Promise<Record<Name, number>> {
  const names = Object.keys(sides) as Name[];
  const spentMs = new Map<Name, number>();
  for (let turn = 0; turn < count; turn += perTurn) {
    for (const name of names) {
      const { inFlight, isSteady, step } = sides[name];
      const end = Math.min(turn + perTurn, count);
      const begun = performance.now();
      // At once, as a transaction brings them, or one after the other in each lane.
      const together = isSteady ? end - turn : inFlight;
      for (let from = turn; from < end; from += together) {
        const to = Math.min(from + together, end);
        let next = from;
        const lane = async () => {
          while (next < to) await step(next++);
        };
        await Promise.all(Array.from({ length: inFlight }, lane));
      }
      spentMs.set(name, (spentMs.get(name) ?? 0) + performance.now() - begun);
    }
  }
  const rates = names.map((name) => [name, (count * 1_000) / (spentMs.get(name) ?? 0)] as const);
  return Object.fromEntries(rates) as Record<Name, number>;
}

async function expectDecrypted(decrypting: Promise<{ readonly kind: string }>): Promise<void> {
  const { kind } = await decrypting;
  if (kind !== "decrypted") throw new Error(kind);
}

/** A sender, a bare machine and two ghosts on one key server. */
async function scene(databaseUrl: string, threads: number) {
  const server = new KeyServer();
  const alice = await Person.join(server, ALICE);
  const openStore = () => StoreHandle.openWithKey(`bare ${threads}`, new Uint8Array(32).fill(2));
  const bare = await Person.join(server, BARE, "PHONE", openStore);
  const volatile = await Person.join(server, VOLATILE);
  const ours = machines(databaseUrl, threads);
  const ghosts = GHOSTS.map((ghost) => new GhostSide(server, ours, ghost, `DEVICE${threads}`));
  for (const ghost of ghosts) {
    await ghost.create();
    await ghost.track(ALICE);
  }
  await bare.track(ALICE);
  await volatile.track(ALICE);
  let rooms = 0;
  return {
    bare,
    volatile,
    ghosts,
    close: () => ours.close(),
    /** New sessions, their keys in everybody's inbox, and one event of each. */
    sessions: async (count: number): Promise<EncryptedRoomEvent[]> => {
      const said: EncryptedRoomEvent[] = [];
      for (let n = 0; n < count; n++) {
        const room = `!room${rooms++}:a.test`;
        await alice.share(room, BARE, VOLATILE, ...GHOSTS);
        said.push(await alice.say(room, "What does the handbook say about this?"));
      }
      return said;
    },
    /** More events of one session. */
    events: async (count: number): Promise<EncryptedRoomEvent[]> => {
      const said: EncryptedRoomEvent[] = [];
      let room = "";
      for (let n = 0; n < count; n++) {
        if (n % 50 === 0) {
          room = `!room${rooms++}:a.test`;
          await alice.share(room, BARE, VOLATILE, ...GHOSTS);
        }
        said.push(await alice.say(room, "What does the handbook say about this?"));
      }
      return said;
    },
    inbox: (user: string, device: string): Json[] => server.take(user, device),
  };
}

type Scene = Awaited<ReturnType<typeof scene>>;

interface Rates {
  readonly bare: number;
  readonly volatile: number;
  readonly ours: number;
}

/** The element at an index that is known to be there. */
function at<Value>(values: readonly Value[], index: number): Value {
  const value = values[index];
  if (value === undefined) throw new Error(`nothing at ${index}`);
  return value;
}

async function receipts(scene: Scene): Promise<Rates> {
  await scene.sessions(SESSIONS);
  const side = (user: string, device: string, receive: (messages: Json[]) => Promise<unknown>): Side => {
    const messages = scene.inbox(user, device);
    return { inFlight: 1, step: (index) => receive([at(messages, index)]) };
  };
  const ghost = at(scene.ghosts, 0);
  return await inTurns(SESSIONS, {
    bare: side(BARE, "PHONE", (messages) => scene.bare.receive(messages)),
    ours: side(ghost.ghost, ghost.device, (messages) => ghost.receive(messages)),
    volatile: side(VOLATILE, "PHONE", (messages) => scene.volatile.receive(messages)),
  });
}

const decrypting = (ghost: GhostSide, event: EncryptedRoomEvent) =>
  expectDecrypted(ghost.machines.decrypt(ghost.ghost, event));

async function decryptions(scene: Scene): Promise<Rates> {
  const events = await scene.events(EVENTS);
  const ghost = at(scene.ghosts, 0);
  await scene.bare.sync();
  await scene.volatile.sync();
  await ghost.receive();
  // A machine called directly is fastest one event after the other.
  const direct = (person: Person): Side => ({
    inFlight: 1,
    step: (index) => {
      const { room, sender, raw } = at(events, index);
      return person.read(room, sender, raw["content"]);
    },
  });
  return await inTurns(EVENTS, {
    bare: direct(scene.bare),
    ours: { inFlight: IN_FLIGHT, step: (index) => decrypting(ghost, at(events, index)) },
    volatile: direct(scene.volatile),
  });
}

/** Decryptions a second of two ghosts together, with one thread and with two. */
async function together(one: Scene, two: Scene): Promise<{ one: number; two: number }> {
  const side = async (scene: Scene): Promise<Side> => {
    const events = await scene.events(EVENTS);
    for (const ghost of scene.ghosts) await ghost.receive();
    // Both ghosts are in each room.
    const step = (index: number) =>
      decrypting(at(scene.ghosts, index % GHOSTS.length), at(events, Math.floor(index / GHOSTS.length)));
    return { inFlight: IN_FLIGHT, isSteady: true, step };
  };
  const sides = { one: await side(one), two: await side(two) };
  // Where a turn ends the threads wait for each other, which they do not at work.
  return await inTurns(GHOSTS.length * EVENTS, sides, EVENTS);
}

const perSecond = (rates: readonly number[]) => `${Math.round(median(rates))} per second`;

async function run({ postgresUrl, progress }: BenchContext) {
  const urls = [
    await createDatabase(postgresUrl, "bench_crypto_1"),
    await createDatabase(postgresUrl, "bench_crypto_2"),
  ];
  for (const url of urls) {
    const pool = new Pool({ connectionString: url, max: 1 });
    await migrate(pool);
    await pool.end();
  }
  const [one, two] = [await scene(urls[0] ?? "", 1), await scene(urls[1] ?? "", 2)];
  const keys: Rates[] = [];
  const events: Rates[] = [];
  const threads: { one: number; two: number }[] = [];
  // The first round warms everything up.
  for (let round = 0; round <= ROUNDS; round++) {
    const measured = {
      keys: await receipts(one),
      events: await decryptions(one),
      threads: await together(one, two),
    };
    progress(JSON.stringify(measured));
    if (round === 0) continue;
    keys.push(measured.keys);
    events.push(measured.events);
    threads.push(measured.threads);
  }
  await one.close();
  await two.close();
  const row = (
    measure: string,
    pairs: readonly { readonly ours: number; readonly reference: number }[],
    atLeast: number,
    of: string,
  ) => {
    const ratio = median(pairs.map(({ ours, reference }) => ours / reference));
    const [ours, theirs] = [pairs.map((pair) => pair.ours), pairs.map((pair) => pair.reference)];
    return {
      measure,
      ours: perSecond(ours),
      reference: `${of}: ${perSecond(theirs)}`,
      bar: `≥ ${atLeast} of the reference`,
      outcome: ratio.toFixed(2),
      met: ratio >= atLeast,
      numbers: { ours: median(ours), reference: median(theirs), unit: "per second" },
    };
  };
  const against = (measure: string, rates: readonly Rates[], atLeast: number) => {
    const pairs = rates.map(({ ours, bare }) => ({ ours, reference: bare }));
    const made = row(measure, pairs, atLeast, "the bare machine");
    const volatile = perSecond(rates.map((one) => one.volatile));
    return { ...made, reference: `${made.reference} (volatile store: ${volatile})` };
  };
  return [
    against("room keys made durable", keys, 0.3),
    against("decryptions", events, 0.8),
    row(
      "decryptions of two ghosts, two threads",
      threads.map((pair) => ({ ours: pair.two, reference: pair.one })),
      1.6,
      "one thread",
    ),
  ];
}

export const bench: Bench = {
  name: "Encrypted rooms",
  minutes: 4,
  description: `Room keys taken in one at a time, each durable on PostgreSQL before it is acknowledged; events decrypted ${IN_FLIGHT} at a time; both in threads. The reference is the official machine itself, its databases in memory and encrypted alike, called directly in one thread, one thing after the other; in parentheses, with the library's own volatile store. Medians of ${ROUNDS} rounds; the sides take turns of ${TURN}, of ${EVENTS} with several threads, where the next event is handed in as one is done.`,
  run,
};
