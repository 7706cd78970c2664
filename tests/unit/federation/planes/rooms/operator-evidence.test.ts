import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { DrawbridgeError } from "../../../../../src/domain/errors.ts";
import {
  type RoomId,
  roomOfVisibleId,
  type ServerName,
  visibleId,
} from "../../../../../src/domain/identifiers.ts";
import { roomEvidence } from "../../../../../src/federation/planes/rooms/runtime.ts";
import type { RoomsSession } from "../../../../../src/federation/planes/rooms/session.ts";

const PARTNER = "b.test" as ServerName;

/** A room that `creator` has made, with people of a.test, b.test and d.test, whose server shows us nothing of it. */
function session(
  creator: string,
  allow: readonly string[],
  { roomId = "!room:b.test", others = ["@alice:b.test"] }: { roomId?: string; others?: string[] } = {},
): RoomsSession {
  const event = (type: string, state_key: string, content: object) => ({
    ...{ type, state_key, sender: creator, event_id: `$${type} ${state_key}`, content },
  });
  const member = (user: string) => event("m.room.member", user, { membership: "join" });
  const room = [
    event("m.room.create", "", { room_version: "11", creator }),
    event("m.room.server_acl", "", { allow, deny: [], allow_ip_literals: false }),
    ...[creator, "@alice:a.test", "@alice:d.test", ...others].map(member),
  ];
  return {
    intent: { own: "a.test", allow: ["a.test"], retained: ["d.test"], closing: [] },
    journals: new Map(),
    clock: { now: () => 0 },
    home: {
      rooms: async () => [],
      enforcement: async () => ({
        ...{ allowed: true, cached: true, enforces_state: true, state_event_id: "$m.room.server_acl" },
      }),
    },
    signed: { request: async () => ({ status: 403, errcode: undefined, isJson: true, body: {} }) },
    operator: {
      rooms: async () => [roomId],
      destinationRooms: async () => [],
      roomState: async () => room,
    },
  } as unknown as RoomsSession;
}

const atRetained = async (creator: string, allow: readonly string[]) =>
  (await roomEvidence(session(creator, allow), PARTNER))
    .filter(({ probe }) => probe === "room_acl_at_retained")
    .map(({ verdict }) => verdict);

describe("roomEvidence", () => {
  it("no other server is queried about a partner's own room whose ACL admits the partner [RDM-1] [PLN-2]", async () => {
    const everybody = ["a.test", "b.test", "d.test"];
    assert.deepEqual(await atRetained("@bob:b.test", everybody), []);
    // What is ours, and whatever keeps the partner out, is to be shown.
    assert.deepEqual(await atRetained("@bob:a.test", everybody), ["unknown"]);
    assert.deepEqual(await atRetained("@bob:b.test", ["a.test", "d.test"]), ["unknown"]);
  });

  it("an ACL event whose ID cannot be escaped is unproven at a retained server, and nothing fails [PLN-2]", async () => {
    const scene = session("@bob:a.test", ["a.test", "d.test"]);
    const events = (await scene.operator.roomState("!room:b.test" as RoomId)) ?? [];
    const state = events.map((event) => ({ ...event, event_id: "$\ud800" }));
    const operator = {
      ...scene.operator,
      roomState: async () => state,
    } as unknown as RoomsSession["operator"];
    const found = await roomEvidence({ ...scene, operator }, PARTNER);
    assert.equal(found.find(({ probe }) => probe === "room_acl_at_retained")?.verdict, "unknown");
  });

  it("a room that cannot be read is unknown, and keeps no other from being observed [OFF-2] [PLN-2]", async () => {
    const scene = session("@bob:a.test", ["a.test"]);
    const operator = {
      ...scene.operator,
      operatorOf: async () => "@root:a.test",
      rooms: async () => ["!room:b.test", "!hung:b.test"],
      roomState: async (room: string) => {
        if (room === "!hung:b.test") throw new DrawbridgeError("homeserver_unavailable", "no answer");
        return scene.operator.roomState(room as RoomId);
      },
    } as unknown as RoomsSession["operator"];
    const found = await roomEvidence({ ...scene, operator }, PARTNER);
    const of = (room: string) => found.filter(({ subject }) => subject === room);
    assert.equal(of("!room:b.test").find(({ probe }) => probe === "room_acl")?.verdict, "closed");
    assert.deepEqual(
      of("!hung:b.test").map(({ probe, verdict, reason }) => [probe, verdict, reason]),
      ["room_acl", "room_enforcement", "room_members"].map((probe) => [
        ...[probe, "unknown", "homeserver_unavailable"],
      ]),
    );
  });

  it("a room that a removal has to cover, and out of which the partner has put our users, is reported as left [OFF-2] [PLN-2]", async () => {
    const scene = session("@bob:b.test", ["a.test", "b.test"]);
    const found = async (state: readonly unknown[] | undefined, ...covering: string[]) => {
      const operator = {
        ...scene.operator,
        roomState: async () => state,
      } as unknown as RoomsSession["operator"];
      const items = await roomEvidence({ ...scene, operator }, PARTNER, covering);
      return items.map(({ probe, verdict, reason, subject }) => [probe, verdict, reason, subject]);
    };
    const left = ["room_left", "closed", "left", "!room:b.test"];
    // Synapse keeps no state of a room that nobody of its own is in; it has forgotten one that was purged.
    for (const state of [[], undefined]) {
      assert.deepEqual(await found(state, "!room:b.test"), [left]);
      assert.deepEqual(
        await found(state),
        [["rooms_shared", "closed", "no_room_in_scope", null]],
        "no other",
      );
    }
    const present = await found(await scene.operator.roomState("!room:b.test" as RoomId), "!room:b.test");
    assert.ok(present.length > 0 && present.every(([probe]) => probe !== "room_left"), "still in it");
  });

  it("a room that has a long ID, and out of which the partner has put our users, is reported as left [OFF-2] [PLN-2]", async () => {
    const roomId = `!${"é".repeat(120)}:b.test`;
    const scene = session("@bob:b.test", ["a.test", "b.test"], { roomId });
    const operator = { ...scene.operator, roomState: async () => [] } as unknown as RoomsSession["operator"];
    const subject = visibleId(roomId);
    assert.equal(roomOfVisibleId(subject), undefined, "records have its digest");
    const [left] = await roomEvidence({ ...scene, operator }, PARTNER, [subject]);
    assert.deepEqual([left?.probe, left?.reason, left?.subject], ["room_left", "left", subject]);
  });

  it("a room and users whose IDs the grammar excludes are observed, and an unreadable membership is no absence [PLN-2]", async () => {
    const members = async (others: string[]) => {
      const found = await roomEvidence(
        session("@o ne:a.test", ["a.test", "d.test"], { roomId: "!r oom%é", others }),
        PARTNER,
      );
      const item = found.find(({ probe }) => probe === "room_members");
      return [item?.subject, item?.verdict, item?.reason, item?.references];
    };
    const subject = "!r%20oom%25%C3%A9";
    assert.equal(roomOfVisibleId(subject), "!r oom%é");
    assert.deepEqual(await members(["@a b:b.test"]), [subject, "open", null, ["present=1"]]);
    assert.deepEqual(await members(["nobody"]), [subject, "unknown", "unreadable_member", ["present=0"]]);
    assert.deepEqual(await members([]), [subject, "closed", null, ["present=0"]]);
  });
});
