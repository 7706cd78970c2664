// The bridge is killed and another process takes over, again and again, while a person asks in an encrypted
// room: the ghost's device stays the same, and every question is answered once.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { systemClock, systemRandom } from "../../src/domain/clock.ts";
import type { EventId } from "../../src/domain/identifiers.ts";
import {
  devicesOf,
  type EncryptedBridge,
  encryptedBridge,
  eventually,
  GHOST,
  questionTo,
} from "../support/encrypted-bridge.ts";
import { EncryptingClient, encryptedRoom, repliesTo } from "../support/encrypting-client.ts";
import { killsOf } from "../support/kills.ts";
import { startSynapse } from "../support/synapse.ts";

/** A bridge that was ended, and what it logged. */
export interface PastBridge {
  readonly startedAt: number;
  readonly endedAt: number;
  readonly printed: string;
}

const DELEGATIONS = `
  SELECT d.matrix_event_id, d.id, d.room_seq, d.state, d.ingress, d.lease_holder, d.lease_until, d.due_at, d.attempts,
    d.a2a_attempted, d.a2a_unsettled, d.retry_reason, d.admitted_at, d.accepted_at, d.terminal_at, d.terminal_reason
  FROM bridge_delegations d WHERE d.matrix_event_id = ANY($1) ORDER BY d.id`;
const ENVELOPES = `
  SELECT matrix_event_id, room_seq, state, ingress, attempts, key_requests, due_at, holder, woken_at, deadline,
    admitted_at, terminal_reason
  FROM bridge_encrypted_intake WHERE matrix_event_id = ANY($1) ORDER BY room_seq`;
const OTHERS = [
  "SELECT state, count(*)::int AS delegations, max(terminal_at) AS last FROM bridge_delegations GROUP BY state",
  "SELECT state, count(*)::int AS envelopes FROM bridge_encrypted_intake GROUP BY state",
  "SELECT * FROM bridge_rooms",
  "SELECT * FROM bridge_ghosts",
  "SELECT ghost_mxid, device_id, fence, epoch, published_at FROM bridge_crypto_stores",
  "SELECT now() AS now",
];

/** Lines of a log that are no plain course of things. */
function complaints(printed: string): string[] {
  return printed.split("\n").filter((line) => {
    try {
      return !["debug", "info"].includes((JSON.parse(line) as { level: string }).level);
    } catch {
      return line.trim() !== "";
    }
  });
}

const LINES_MAX = 60;

/**
 * Where each of these questions stands, and what the bridges complained of; oldest first.
 * @param brought in how many transactions each event came
 */
export async function whereaboutsOf(
  unanswered: readonly EventId[],
  bridge: Pick<EncryptedBridge, "rows">,
  brought: ReadonlyMap<string, number>,
  bridges: readonly PastBridge[],
): Promise<string> {
  const table = async (sql: string, values: unknown[] = []) =>
    (await bridge.rows(sql, values)).map((row) => JSON.stringify(row));
  const past = bridges.flatMap(({ startedAt, endedAt, printed }, index) => {
    const span = `${new Date(startedAt).toISOString()} to ${new Date(endedAt).toISOString()}`;
    const lines = complaints(printed);
    return lines.length === 0 ? [] : [`bridge ${index}, ${span}:`, ...lines];
  });
  return [
    `${unanswered.length} unanswered:`,
    ...unanswered.map((event) => `${event}: in ${brought.get(event) ?? 0} transactions`),
    ...(await table(DELEGATIONS, [unanswered])),
    ...(await table(ENVELOPES, [unanswered])),
    ...(await Promise.all(OTHERS.map((sql) => table(sql)))).flat(),
    ...past.slice(-LINES_MAX),
  ].join("\n");
}

const REPLACEMENTS = killsOf(100);
/** Within this time of a question's acceptance the bridge is killed. */
const KILL_WITHIN_MS = 600;
/** Nothing of a bridge that was killed is waited for; this is for a machine with much else to do. */
const PATIENCE_MS = 60_000;

describe("a bridge that is replaced", () => {
  it(`the device stays the same and each question is answered once when the bridge is replaced ${REPLACEMENTS} times [ENC-2] [ENC-7]`, async (t) => {
    const synapse = await startSynapse();
    const bridge = await encryptedBridge(t, synapse);
    t.after(() => synapse.dispose());
    let process = await bridge.spawn();
    const alice = await EncryptingClient.start(await synapse.user("alice"));
    t.after(() => alice.close());
    const room = await encryptedRoom(alice.user, [GHOST]);
    await bridge.settled(room);
    const devices = await devicesOf(alice.user);
    assert.equal(devices.length, 1);

    const past: PastBridge[] = [];
    const brought = new Map<string, number>();
    bridge.onTransaction = ({ events }) => {
      for (const { event_id } of events as readonly { readonly event_id: string }[])
        brought.set(event_id, (brought.get(event_id) ?? 0) + 1);
      return "pass";
    };
    let startedAt = systemClock.now();
    const kill = async () => {
      process.child.kill("SIGKILL");
      const { stdout, stderr } = await process.finished;
      past.push({ startedAt, endedAt: systemClock.now(), printed: stdout + stderr });
      startedAt = systemClock.now();
    };

    const questions: EventId[] = [];
    for (let replaced = 0; replaced < REPLACEMENTS; replaced++) {
      questions.push(await alice.send(room, questionTo(`question ${replaced}`)));
      await systemClock.sleep(systemRandom.bytes(2).readUInt16BE() % KILL_WITHIN_MS);
      await kill();
      process = await bridge.spawn();
    }
    const begun = systemClock.now();
    let unanswered: readonly EventId[] = questions;
    const answered = await eventually(
      "every question is answered",
      async () => {
        const replies = (await alice.messages(room)).filter(({ sender }) => sender === GHOST).map(repliesTo);
        unanswered = questions.filter((question) => !replies.includes(question));
        return unanswered.length === 0 ? replies : undefined;
      },
      PATIENCE_MS,
    ).catch(async (cause: unknown) => {
      await kill();
      throw new Error(await whereaboutsOf(unanswered, bridge, brought, past), { cause });
    });
    t.diagnostic(`every question was answered ${systemClock.now() - begun} ms after the last start`);
    // Whatever else is under way would have arrived by now.
    await systemClock.sleep(3_000);
    const sent = (await alice.rawEvents(room)).filter(
      ({ sender, type }) => sender === GHOST && type !== "m.room.member",
    );
    assert.deepEqual(answered.toSorted(), questions.toSorted());
    assert.equal(sent.length, REPLACEMENTS, "nothing was sent twice");
    assert.deepEqual(await devicesOf(alice.user), devices);
    const waited = await bridge.rows(
      "SELECT state, count(*)::int AS n FROM bridge_encrypted_intake GROUP BY state",
    );
    t.diagnostic(`events that waited for their key: ${JSON.stringify(waited)}`);
  });
});
