// What a real Synapse passes on to the bridge although no room accepts it: invitations to rooms whose servers did not invite,
// and events that the room's state forbids by now (soft failure, server-server API).
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, describe, it, type TestContext } from "node:test";
import pg from "pg";
import type { RoomId, UserId } from "../../../../src/domain/identifiers.ts";
import { encryptedBridge, eventually, GHOST } from "../../../support/encrypted-bridge.ts";
import { startSynapse, type TestUser } from "../../../support/synapse.ts";
import { ROOT } from "../../../support/temporary.ts";
import { serverOfFile } from "../../../support/test-server.ts";
import { OUTSIDE, outsideServer, stateId } from "./outside-server.ts";

const REPAIR = /```sql\n(UPDATE local_current_membership .*?)```/s.exec(
  readFileSync(`${ROOT}/docs/operating/run-a-bridge.md`, "utf8"),
)?.[1] as string;
const MALLORY = `@mallory:${OUTSIDE}` as UserId;

const server = await serverOfFile();
const closing: Parameters<TestContext["after"]>[0][] = [];
after(async () => {
  for (const close of closing) await (close as () => unknown)();
  await server.stop();
});

describe("what no room accepts", () => {
  async function setUp(
    entry: Readonly<Record<string, unknown>>,
    options: Readonly<Record<string, unknown>>,
    border: Parameters<typeof startSynapse>[0] = {},
  ) {
    const synapse = await startSynapse({ federates: true, ...border });
    const bridge = await encryptedBridge({ after: (close) => closing.push(close) }, synapse, { entry });
    closing.push(() => synapse.dispose());
    await bridge.start();
    const outside = await outsideServer(synapse);
    const alice = await synapse.user("alice");
    const room = await alice.createRoom({ invite: [GHOST], room_version: "11", ...options });
    await bridge.settled(room);
    return { synapse, bridge, outside, alice, room };
  }
  const path = (room: RoomId, rest: string) => `/rooms/${encodeURIComponent(room)}/${rest}`;
  const ask = (user: TestUser, room: RoomId, name: string) =>
    user.call("PUT", path(room, `send/m.room.message/${name}`), {
      msgtype: "m.text",
      body: name,
      "m.mentions": { user_ids: [GHOST] },
    });
  const answered = (user: TestUser, room: RoomId, count: number) =>
    eventually(`${count} answers`, async () => {
      const messages = await user.messages(room);
      return messages.filter(({ sender }) => sender === GHOST).length === count ? true : undefined;
    });

  it("an invitation from outside of a ghost that is in the room locks it out of Synapse, and what is asked meanwhile is answered once that is put right [INT-8]", async () => {
    const { synapse, bridge, outside, alice, room } = await setUp({}, {});
    await outside.invite(room, GHOST as UserId, MALLORY);
    const isHidden = () => bridge.logged.some((line) => line.includes("room_hidden"));
    await eventually("the bridge was told", async () => (isHidden() ? true : undefined));
    const known = () => bridge.rows("SELECT membership, task FROM bridge_ghost_rooms");
    assert.deepEqual(await known(), [{ membership: "join", task: "settle" }]);
    const members = await alice.call("GET", path(room, "joined_members"));
    assert.ok(GHOST in (members["joined"] as object));
    await ask(alice, room, "meanwhile");
    await eventually("the agent was asked", async () => {
      const rows = await bridge.rows("SELECT FROM bridge_delegations WHERE state = 'reply_pending'");
      return rows.length > 0 ? true : undefined;
    });

    // As docs/operating/run-a-bridge.md says.
    await synapse.stop();
    const db = new pg.Client({ connectionString: synapse.databaseUrl });
    await db.connect();
    const { rowCount } = await db.query(REPAIR);
    await db.end();
    assert.equal(rowCount, 1);
    await synapse.start();
    await bridge.rows("UPDATE bridge_ghost_rooms SET due_at = now()");
    await bridge.rows("UPDATE bridge_delegations SET due_at = now() WHERE due_at IS NOT NULL");
    await answered(alice, room, 1);
    await bridge.settled(room);
  });

  it("the border module refuses an invitation of a ghost that is in the room, which then answers as before [INT-8] [PLN-3]", async () => {
    const { bridge, outside, alice, room } = await setUp({}, {}, { allowedServers: [OUTSIDE] });
    const invite = (of: RoomId) => outside.invite(of, GHOST as UserId, MALLORY);
    await assert.rejects(invite(room), /HTTP 403 .*not permitted to send invites/);
    await ask(alice, room, "afterwards");
    await answered(alice, room, 1);
    await bridge.settled(room);
    await invite(`!of-its-own:${OUTSIDE}` as RoomId);
  });

  it("a banned member's question is not asked, and his encryption of the room does not count [DEL-2] [ENC-1]", async () => {
    const allowed = { allowedServers: ["a.test", OUTSIDE], allowedSenders: ["*:a.test", `*:${OUTSIDE}`] };
    const { bridge, outside, alice, room } = await setUp(allowed, { preset: "public_chat" });
    const { id: join } = await outside.join(room, MALLORY);
    const levels = await alice.call("GET", path(room, "state/m.room.power_levels"));
    const { events, users } = levels as { events: object; users: object };
    await alice.call("PUT", path(room, "state/m.room.power_levels"), {
      ...levels,
      events: { ...events, "m.room.encryption": 50 },
      users: { ...users, [MALLORY]: 50 },
    });
    const power = await stateId(alice, room, "m.room.power_levels");
    const allowedBy = [await stateId(alice, room, "m.room.create"), power, join];
    const say = (body: string) => ({
      ...{ type: "m.room.message", room_id: room, sender: MALLORY },
      content: { msgtype: "m.text", body, "m.mentions": { user_ids: [GHOST] } },
    });
    const first = await outside.send(say("as a member"), power, allowedBy, 20);
    await answered(alice, room, 1);
    await alice.call("POST", path(room, "ban"), { user_id: MALLORY });

    const second = await outside.send(say("as a banned one"), first, allowedBy, 21);
    const ended = () =>
      bridge.rows(
        "SELECT state, terminal_reason AS reason FROM bridge_delegations WHERE matrix_event_id = $1 AND terminal_at IS NOT NULL",
        [second],
      );
    await eventually("the question has ended", async () => ((await ended()).length > 0 ? true : undefined));
    assert.deepEqual(await ended(), [{ state: "denied", reason: "sender_policy_rejected" }]);
    assert.deepEqual(await bridge.rows("SELECT * FROM bridge_notices"), []);

    const encryption = {
      ...{ type: "m.room.encryption", state_key: "", room_id: room, sender: MALLORY },
      content: { algorithm: "m.megolm.v1.aes-sha2" },
    };
    const third = await outside.send(encryption, first, allowedBy, 22);
    const handled = () =>
      bridge.rows("SELECT FROM bridge_handled_events WHERE matrix_event_id = $1", [third]);
    await eventually("the bridge was told", async () => ((await handled()).length > 0 ? true : undefined));
    await bridge.settled(room);
    assert.deepEqual(await bridge.rows("SELECT DISTINCT encrypted FROM bridge_rooms"), [
      { encrypted: false },
    ]);
    await ask(alice, room, "afterwards");
    await answered(alice, room, 2);
  });
});
