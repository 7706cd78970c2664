import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { EventId, RoomId, UserId } from "../../../../../src/domain/identifiers.ts";
import { aclAllow, deniedByEnforcement } from "../../../../../src/federation/planes/rooms/acl.ts";
import type { RoomsIntent } from "../../../../../src/federation/planes/rooms/intent.ts";
import { planRoom, type RoomAct } from "../../../../../src/federation/planes/rooms/plan.ts";
import { levelOf } from "../../../../../src/federation/planes/rooms/power.ts";
import {
  type Member,
  presentOf,
  type RoomState,
} from "../../../../../src/federation/planes/rooms/room-state.ts";

const OWN = "a.test:1";
const PARTNER = "b.test:2";
const RETAINED = "c.test:3";
const STRANGER = "d.test:4";
const INTENT: RoomsIntent = {
  version: 1,
  own: OWN,
  allow: aclAllow([OWN, RETAINED]),
  retained: [RETAINED],
  closing: [
    { serverName: PARTNER, name: "org-b", mode: "contained", after: "read_only", unclosable: "list" },
  ],
  notInvitedAgain: [],
};
const USERS = [OWN, PARTNER, RETAINED, STRANGER].flatMap((server) =>
  ["one", "two"].map((name) => `@${name}:${server}` as UserId),
);
const ORDER: Readonly<Record<RoomAct["kind"], number>> = {
  raise_invite: 0,
  ban: 1,
  set_acl: 2,
  read_only: 3,
};

const rooms: fc.Arbitrary<RoomState> = fc
  .record({
    creator: fc.constantFrom(...USERS),
    memberships: fc.tuple(...USERS.map(() => fc.constantFrom("join", "invite", "knock", "leave", "ban"))),
    levels: fc.tuple(...USERS.map(() => fc.constantFrom(0, 50, 100))),
    isTwelve: fc.boolean(),
    acl: fc.constantFrom(undefined, { allow: ["*"] }, { allow: INTENT.allow, allow_ip_literals: false }),
  })
  .map(({ creator, memberships, levels, isTwelve, acl }) => ({
    roomId: "!room" as RoomId,
    version: isTwelve ? "12" : "10",
    creator,
    federates: true,
    members: new Map(
      USERS.map((user, index): [UserId, Member] => [
        user,
        { membership: memberships[index] as Member["membership"], sender: user, eventId: "$m" as EventId },
      ]),
    ),
    power: {
      content: { users: Object.fromEntries(USERS.map((user, index) => [user, levels[index]])), invite: 0 },
      creator,
      privileged: new Set(isTwelve ? [creator] : []),
    },
    acl: acl === undefined ? undefined : { content: acl, eventId: "$acl" as EventId },
    joinRule: "invite",
    single: new Map(),
    predecessor: undefined,
  }));

const plan = (room: RoomState) =>
  planRoom(room, {
    intent: INTENT,
    operator: `@root:${OWN}` as UserId,
    journaled: new Set([PARTNER]),
    unusable: new Set(),
  });

/** What a homeserver would make of the acts. */
function afterActs(room: RoomState, acts: readonly RoomAct[], by: UserId): RoomState {
  const one = (state: RoomState, act: RoomAct): RoomState => {
    switch (act.kind) {
      case "ban":
        return {
          ...state,
          members: new Map(state.members).set(act.user, {
            membership: "ban",
            sender: by,
            eventId: "$b" as EventId,
          }),
        };
      case "set_acl":
        return { ...state, acl: { content: act.content, eventId: "$n" as EventId } };
      default:
        return {
          ...state,
          power: { ...state.power, content: { ...act.content, invite: Math.max(...invites(state, act)) } },
        };
    }
  };
  let state = room;
  for (const act of acts) state = one(state, act);
  return state;
}

function invites(state: RoomState, act: Extract<RoomAct, { content: object }>): number[] {
  return [state.power.content, act.content as Record<string, unknown>].map((one) =>
    Number(one?.["invite"] ?? 0),
  );
}

describe("rooms plan", () => {
  it("in any room acts come in order, within power, and never against a server that stays [PLN-2]", () => {
    fc.assert(
      fc.property(rooms, (room) => {
        const { acts, actor } = plan(room);
        const kinds = acts.map(({ kind }) => ORDER[kind]);
        assert.deepEqual(
          kinds,
          [...kinds].sort((one, other) => one - other),
        );
        if (acts.some(({ kind }) => kind === "ban")) assert.ok(!acts.some(({ kind }) => kind === "set_acl"));
        for (const act of acts) {
          assert.ok(actor !== undefined);
          if (act.kind === "ban") {
            assert.ok(act.user.endsWith(`:${PARTNER}`));
            assert.ok(levelOf(room.power, actor) > levelOf(room.power, act.user));
          }
          if (act.kind === "set_acl") {
            const joined = [...room.members].filter(([, { membership }]) => membership === "join");
            for (const [user] of joined) {
              const server = user.slice(user.indexOf(":") + 1);
              if (server !== PARTNER) assert.ok(!deniedByEnforcement(act.content, server), server);
            }
            assert.ok(!deniedByEnforcement(act.content, OWN));
            assert.ok(deniedByEnforcement(act.content, PARTNER));
          }
        }
      }),
    );
  });

  it("a room is settled after two rounds, and then nothing is planned again [PLN-2]", () => {
    fc.assert(
      fc.property(rooms, (room) => {
        let state = room;
        for (let round = 0; round < 3; round++) {
          const { acts, actor } = plan(state);
          if (actor !== undefined) state = afterActs(state, acts, actor);
        }
        const { acts, obstacles } = plan(state);
        assert.deepEqual(acts, []);
        if (obstacles.length === 0) assert.deepEqual(presentOf(state, PARTNER), []);
      }),
    );
  });
});
