import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { EventId, RoomId, UserId } from "../../../../../src/domain/identifiers.ts";
import { aclAllow, deniedByEnforcement } from "../../../../../src/federation/planes/rooms/acl.ts";
import { planRoom, type RoomStep } from "../../../../../src/federation/planes/rooms/plan-closing.ts";
import { levelOf } from "../../../../../src/federation/planes/rooms/power-levels.ts";
import {
  type Member,
  presentOf,
  type RoomState,
} from "../../../../../src/federation/planes/rooms/room-state.ts";
import type { RoomsIntent } from "../../../../../src/federation/planes/rooms/rooms-intent.ts";

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
const ORDER: Readonly<Record<RoomStep["kind"], number>> = {
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

/** What a homeserver would make of the steps. */
function afterSteps(room: RoomState, steps: readonly RoomStep[], by: UserId): RoomState {
  const one = (state: RoomState, step: RoomStep): RoomState => {
    switch (step.kind) {
      case "ban":
        return {
          ...state,
          members: new Map(state.members).set(step.user, {
            membership: "ban",
            sender: by,
            eventId: "$b" as EventId,
          }),
        };
      case "set_acl":
        return { ...state, acl: { content: step.content, eventId: "$n" as EventId } };
      default:
        return {
          ...state,
          power: { ...state.power, content: { ...step.content, invite: Math.max(...invites(state, step)) } },
        };
    }
  };
  let state = room;
  for (const step of steps) state = one(state, step);
  return state;
}

function invites(state: RoomState, step: Extract<RoomStep, { content: object }>): number[] {
  return [state.power.content, step.content as Record<string, unknown>].map((one) =>
    Number(one?.["invite"] ?? 0),
  );
}

describe("planRoom", () => {
  it("in any room the steps come in order, within the actor's power, and never deny a server that stays [PLN-2]", () => {
    fc.assert(
      fc.property(rooms, (room) => {
        const { steps, actor } = plan(room);
        const kinds = steps.map(({ kind }) => ORDER[kind]);
        assert.deepEqual(
          kinds,
          [...kinds].sort((one, other) => one - other),
        );
        if (steps.some(({ kind }) => kind === "ban"))
          assert.ok(!steps.some(({ kind }) => kind === "set_acl"));
        for (const step of steps) {
          assert.ok(actor !== undefined);
          if (step.kind === "ban") {
            assert.ok(step.user.endsWith(`:${PARTNER}`));
            assert.ok(levelOf(room.power, actor) > levelOf(room.power, step.user));
          }
          if (step.kind === "set_acl") {
            const joined = [...room.members].filter(([, { membership }]) => membership === "join");
            for (const [user] of joined) {
              const server = user.slice(user.indexOf(":") + 1);
              if (server !== PARTNER) assert.ok(!deniedByEnforcement(step.content, server), server);
            }
            assert.ok(!deniedByEnforcement(step.content, OWN));
            assert.ok(deniedByEnforcement(step.content, PARTNER));
          }
        }
      }),
    );
  });

  it("a room needs two rounds, and then nothing is planned again [PLN-2]", () => {
    fc.assert(
      fc.property(rooms, (room) => {
        let state = room;
        for (let round = 0; round < 3; round++) {
          const { steps, actor } = plan(state);
          if (actor !== undefined) state = afterSteps(state, steps, actor);
        }
        const { steps, obstacles } = plan(state);
        assert.deepEqual(steps, []);
        if (obstacles.length === 0) assert.deepEqual(presentOf(state, PARTNER), []);
      }),
    );
  });
});
