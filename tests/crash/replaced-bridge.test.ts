// The bridge is killed and another process takes its place, again and again, while a person asks in an
// encrypted room: the ghost's device stays the one it was, and every question is answered once.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { systemClock, systemRandom } from "../../src/domain/clock.ts";
import type { EventId } from "../../src/domain/identifiers.ts";
import { devicesOf, encryptedBridge, eventually, GHOST, questionTo } from "../support/encrypted-bridge.ts";
import { EncryptingClient, encryptedRoom, repliesTo } from "../support/encrypting-client.ts";
import { killsOf } from "../support/kills.ts";
import { startSynapse } from "../support/synapse.ts";
import { type PastBridge, whereaboutsOf } from "../support/unanswered.ts";

const REPLACEMENTS = killsOf(100);
/** Within this time of a question's acceptance the bridge is killed. */
const KILL_WITHIN_MS = 600;
/** Nothing of a bridge that was killed is waited for; this is for a machine with much else to do. */
const PATIENCE_MS = 60_000;

describe("replaced bridge", () => {
  it(`the bridge is replaced ${REPLACEMENTS} times: the same device, and each question answered once [ENC-2] [ENC-7]`, async (t) => {
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
