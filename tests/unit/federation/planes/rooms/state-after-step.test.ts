import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { EventId, RoomId, ServerName, UserId } from "../../../../../src/domain/identifiers.ts";
import type { StateEvent } from "../../../../../src/federation/homeserver/synapse-admin-api.ts";
import { serverAcl } from "../../../../../src/federation/planes/rooms/acl.ts";
import { type RoomStep, stateAfter } from "../../../../../src/federation/planes/rooms/room-plan.ts";
import { readRoomState } from "../../../../../src/federation/planes/rooms/room-state.ts";

const ROOM = "!room" as RoomId;
const ALICE = "@alice:a.test" as UserId;
const BOB = "@bob:b.test" as UserId;
const NEW = "$new" as EventId;

const event = (type: string, state_key: string, content: Record<string, unknown>, event_id = "$old") =>
  ({ type, state_key, sender: ALICE, event_id, content }) satisfies StateEvent;

const ROOM_EVENTS = [
  event("m.room.create", "", { room_version: "11" }),
  event("m.room.power_levels", "", { users: { [ALICE]: 100 }, invite: 0 }),
  event("m.room.member", ALICE, { membership: "join" }),
  event("m.room.member", BOB, { membership: "join" }),
];
const levels = { users: { [ALICE]: 100 }, invite: 50 };
const acl = serverAcl(["a.test", "c.test"]);

const ACTS: readonly (readonly [RoomStep, StateEvent])[] = [
  [{ kind: "raise_invite", level: 50, content: levels }, event("m.room.power_levels", "", levels, NEW)],
  [
    { kind: "read_only", level: 100, content: { ...levels, events_default: 100 } },
    event("m.room.power_levels", "", { ...levels, events_default: 100 }, NEW),
  ],
  [
    { kind: "ban", partner: "b.test" as ServerName, user: BOB },
    event("m.room.member", BOB, { membership: "ban" }, NEW),
  ],
  [{ kind: "set_acl", content: acl }, event("m.room.server_acl", "", { ...acl }, NEW)],
];

describe("stateAfter", () => {
  it("the state after a step equals what the homeserver would show [PLN-2]", () => {
    for (const [act, made] of ACTS) {
      const others = ROOM_EVENTS.filter(
        ({ type, state_key }) => type !== made.type || state_key !== made.state_key,
      );
      const shown = readRoomState(ROOM, [...others, made]);
      const taken = stateAfter(readRoomState(ROOM, ROOM_EVENTS), act, ALICE, NEW);
      assert.deepEqual(
        JSON.parse(JSON.stringify(plain(taken))),
        JSON.parse(JSON.stringify(plain(shown))),
        act.kind,
      );
    }
  });

  /** Maps as sorted lists, so that two states compare by what they say. */
  function plain(state: ReturnType<typeof readRoomState>) {
    const sorted = <Value>(map: ReadonlyMap<string, Value>) => [...map].sort(([a], [b]) => (a < b ? -1 : 1));
    return { ...state, members: sorted(state.members), single: sorted(state.single) };
  }
});
