// A replacement that the homeserver does not let be completed.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { DrawbridgeError } from "../../../../../src/domain/errors.ts";
import type { EventId, RoomId, UserId } from "../../../../../src/domain/identifiers.ts";
import { replaceRoom } from "../../../../../src/federation/planes/rooms/replace-room.ts";
import { readRoomState } from "../../../../../src/federation/planes/rooms/room-state.ts";
import type { RoomsSession } from "../../../../../src/federation/planes/rooms/session.ts";
import type { JournalEntry } from "../../../../../src/federation/planes/rooms/undo-journal.ts";

const ROOM = "!room:a.test" as RoomId;
const NEXT = "!next:a.test" as RoomId;
const ALICE = "@alice:a.test" as UserId;

const CONCERNED = [
  { serverName: "b.test", name: "b", mode: "contained", after: "keep", unclosable: "replace" },
] as const;

describe("replaceRoom", () => {
  it("a new room has levels that a homeserver takes, whatever others wrote into the old one [PLN-2]", async () => {
    const low = "@low:a.test" as UserId;
    const event = (type: string, state_key: string, content: Record<string, unknown>) => ({
      ...{ type, state_key, sender: "@bob:b.test", event_id: `$${type}` as EventId, content },
    });
    const state = readRoomState(ROOM, [
      event("m.room.create", "", { room_version: "5" }),
      event("m.room.power_levels", "", { users: { [low]: -1e300, "@bob:b.test": 100 } }),
      event("m.room.member", ALICE, { membership: "join" }),
      event("m.room.member", low, { membership: "join" }),
    ]);
    let users: Readonly<Record<string, number>> = {};
    const createRoom = async (body: typeof asked) => {
      users = body.power_level_content_override.users;
    };
    const asked = { power_level_content_override: { users } };
    const session = {
      intent: { own: "a.test", allow: ["a.test"], retained: [], closing: [] },
      operatorId: "@operator:a.test",
      operator: { isPerson: async () => true },
      journals: new Map([["b.test", { room: () => undefined, append: async () => undefined }]]),
      tokens: { as: async () => ({ localAliases: async () => [], createRoom }) },
    } as unknown as RoomsSession;
    await replaceRoom({ session, state, concerned: CONCERNED, rooms: [] });
    assert.deepEqual(users, { [low]: Number.MIN_SAFE_INTEGER, [ALICE]: 100 });
  });

  it("a new room that could not be completed is named, so that it is closed and proved with the others [PLN-2]", async () => {
    const event = (type: string, state_key: string, content: Record<string, unknown>) => ({
      ...{ type, state_key, sender: ALICE, event_id: `$${type}` as EventId, origin_server_ts: 0, content },
    });
    const state = readRoomState(ROOM, [
      event("m.room.create", "", { room_version: "10" }),
      event("m.room.member", ALICE, { membership: "join" }),
    ]);
    const entries: JournalEntry[] = [];
    const append = async (entry: JournalEntry) => entries.push(entry);
    const session = {
      intent: { own: "a.test", allow: ["a.test"], retained: [], closing: [] },
      operatorId: "@operator:a.test",
      operator: {
        isPerson: async () => true,
        roomState: async () => undefined,
        roomOfAlias: async () => {
          throw new DrawbridgeError("homeserver_refused", "no aliases today");
        },
      },
      journals: new Map([["b.test", { room: () => undefined, append }]]),
      tokens: {
        as: async () => ({ localAliases: async () => ["#one:a.test"], createRoom: async () => NEXT }),
      },
    } as unknown as RoomsSession;
    const ended = await replaceRoom({ session, state, concerned: CONCERNED, rooms: [] });
    assert.deepEqual(ended, { obstacle: "not_replaced", replacement: NEXT });
    assert.deepEqual(
      entries.map(({ act }) => act),
      ["replace", "replacement"],
    );
  });
});
