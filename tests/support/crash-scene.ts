// A real Synapse with two people, an agent, and bridge processes that die where a test arms a kill: what a crash test
// does with them, and what it looks at afterwards.
// Invariants: the leases outlast every test, so that only the end of a process releases what it held; whatever is counted is
// counted in a room of its own.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { isFor, transactionIdIn } from "../../src/bridge/ledger/transaction-ids.ts";
import type { EventId, RoomId, TransactionId } from "../../src/domain/identifiers.ts";
import {
  type AnotherBridge,
  type EncryptedBridge,
  encryptedBridge,
  eventually,
  GHOST,
} from "./encrypted-bridge.ts";
import { EncryptingClient } from "./encrypting-client.ts";
import { ArmedKills, type FailpointName, KILLS_FOLDER } from "./failpoints.ts";
import { type RoomMessage, startSynapse } from "./synapse.ts";
import { ROOT, start, temporaryFolder } from "./temporary.ts";

const PROGRAM = [join(ROOT, "tests/support/killable-bridge.ts"), join(ROOT, "src/cli/main.ts")] as const;
/** Longer than any test. */
const LEASE = "1h";
/** A homeserver that was refused comes again after a minute or later, and so long a busy machine may take. */
export const PATIENCE_MS = 120_000;

export type RoomKind = "plain" | "encrypted";

export interface CrashScene {
  readonly bridge: EncryptedBridge;
  readonly alice: EncryptingClient;
  readonly bob: EncryptingClient;
  readonly kills: ArmedKills;
  /** Has exactly so many processes run, each of which takes transactions. */
  running(processes: number): Promise<void>;
  /** A new room with both people and the ghost, which may pin in it. */
  room(kind: RoomKind): Promise<RoomId>;
  /** Waits until a process has died by its own kill; starts another one if fewer than `processes` are left. */
  died(name: FailpointName, processes: number): Promise<void>;
}

export async function crashScene(t: Pick<TestContext, "after">): Promise<CrashScene> {
  const synapse = await startSynapse();
  const folder = join(temporaryFolder(t), "kills");
  const kills = new ArmedKills(folder);
  const env = { ...process.env, [KILLS_FOLDER]: folder };
  const [preload, program] = PROGRAM;
  const bridge = await encryptedBridge(t, synapse, {
    limits: { lease: LEASE },
    start: (file) =>
      start(process.execPath, ["--import", preload, program, "bridge", "--config", file], { env }),
  });
  t.after(() => synapse.dispose());
  const [alice, bob] = await Promise.all(
    ["alice", "bob"].map(async (name) => EncryptingClient.start(await synapse.user(name))),
  );
  assert.ok(alice && bob);
  t.after(() => {
    for (const one of [alice, bob]) one.close();
  });
  bridge.onAcknowledged = ({ events }) => {
    const said = events as readonly { readonly type: string; readonly sender: string }[];
    if (said.some(({ type, sender }) => sender !== GHOST && /^m\.room\.(message|encrypted)$/.test(type)))
      kills.acknowledge();
  };

  let live: AnotherBridge[] = [];
  const reach = () => bridge.reachAny(live);
  const startOne = async (ports?: AnotherBridge) => {
    live.push(await bridge.spawnAnother(ports));
    reach();
  };
  const isUp = async (one: AnotherBridge) => {
    const early = one.running.finished.then(({ stderr }) => assert.fail(`a process ended: ${stderr}`));
    await Promise.race([early, takesTransactions(one)]);
  };
  const takesTransactions = (one: AnotherBridge) =>
    eventually("the process takes transactions", async () => {
      const unready = await bridge.unready(one);
      if (unready.length > 0) throw new Error(unready.join());
      return true;
    });
  const ended = (one: AnotherBridge) =>
    one.running.child.exitCode !== null || one.running.child.signalCode !== null;

  return {
    bridge,
    alice,
    bob,
    kills,
    running: async (processes) => {
      live = live.filter((one) => !ended(one));
      for (const one of live.splice(processes)) {
        one.running.child.kill("SIGKILL");
        await one.running.finished;
      }
      reach();
      while (live.length < processes) await startOne();
      await Promise.all(live.map(isUp));
    },
    room: async (kind) => {
      const encryption = {
        type: "m.room.encryption",
        state_key: "",
        content: { algorithm: "m.megolm.v1.aes-sha2" },
      };
      const room = await alice.user.createRoom({
        invite: [GHOST, bob.user.userId],
        power_level_content_override: { events: { "m.room.pinned_events": 0 } },
        initial_state: kind === "encrypted" ? [encryption] : [],
      });
      await bob.user.call("POST", `/join/${encodeURIComponent(room)}`, {});
      await bridge.settled(room);
      return room;
    },
    died: async (name, processes) => {
      const dead = await eventually(`a process dies at ${name}`, async () => live.find(ended), PATIENCE_MS);
      const { signal, stderr } = await dead.running.finished;
      assert.deepEqual([signal, stderr], ["SIGKILL", ""]);
      live = live.filter((one) => one !== dead);
      reach();
      if (live.length < processes) await startOne(dead);
    },
  };
}

/** What a ghost has sent into a room, for one purpose. */
export interface Sent {
  readonly transactionId: TransactionId;
  readonly event: RoomMessage;
}

const PURPOSES = ["reply", "question", "notice", "progress"] as const;
export type Purpose = (typeof PURPOSES)[number];

/** The ghost's events in a room as one person sees them, by their purpose, edits left out; decrypted where they can be. */
export async function saidBy(ghost: string, room: RoomId, person: EncryptingClient) {
  await person.sync();
  const events = (await person.rawEvents(room)).filter(({ sender }) => sender === ghost);
  const all: Sent[] = events.flatMap((event) => {
    const transactionId = transactionIdIn(event.content);
    return transactionId === undefined ? [] : { transactionId, event };
  });
  const messages = events.filter(({ type }) => type === "m.room.message" || type === "m.room.encrypted");
  assert.equal(all.length, messages.length, "every message of a ghost carries its transaction ID");
  const opened = await Promise.all(
    all.map(async ({ transactionId, event }) => ({
      transactionId,
      event,
      read: await person.open(room, event),
    })),
  );
  const isEdit = (event: RoomMessage) =>
    (event.content["m.relates_to"] as { rel_type?: string } | undefined)?.rel_type === "m.replace";
  const of = (purpose: Purpose) =>
    opened.filter(({ transactionId, event }) => isFor(transactionId, purpose) && !isEdit(event));
  const pins = events.filter(({ type }) => type === "m.room.pinned_events");
  return {
    ids: all.map(({ event }) => event.event_id),
    transactionIds: all.map(({ transactionId }) => transactionId),
    types: new Set(messages.map(({ type }) => type)),
    counts: Object.fromEntries(PURPOSES.map((purpose) => [purpose, of(purpose).length])),
    bodies: (purpose: Purpose) => of(purpose).map(({ read }) => String(read.content["body"]).split("\n")[0]),
    pinned: pins.map(({ content }) => content["pinned"]),
    event: (purpose: Purpose) => of(purpose)[0]?.event.event_id as EventId | undefined,
  };
}

/** The lines of the audit file that name an event, parsed. */
export function auditedOf(
  { folder }: Pick<EncryptedBridge, "folder">,
  event: EventId,
): Record<string, unknown>[] {
  const text = readFileSync(join(folder, "audit.jsonl"), "utf8");
  return text
    .split("\n")
    .filter((line) => line.includes(event))
    .map((line) => JSON.parse(line) as Record<string, unknown>);
}
