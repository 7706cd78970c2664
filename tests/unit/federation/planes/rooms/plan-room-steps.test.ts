import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { EventId, RoomId, UserId } from "../../../../../src/domain/identifiers.ts";
import {
  aclAllow,
  deniedByEnforcement,
  type FoundAcl,
} from "../../../../../src/federation/planes/rooms/acl.ts";
import {
  deniedRetained,
  type Earlier,
  isOurs,
  planRoom,
  type RoomStep,
} from "../../../../../src/federation/planes/rooms/plan-room-steps.ts";
import { levelOf } from "../../../../../src/federation/planes/rooms/power-levels.ts";
import type { RoomsIntent } from "../../../../../src/federation/planes/rooms/render.ts";
import {
  type Member,
  presentOf,
  type RoomState,
  readRoomState,
} from "../../../../../src/federation/planes/rooms/room-state.ts";
import type { RoomsSession } from "../../../../../src/federation/planes/rooms/session.ts";
import type { Journal } from "../../../../../src/federation/planes/rooms/undo-journal.ts";
import { ManualClock } from "../../../../support/manual-clock.ts";

const OWN = "a.test:1";
const PARTNER = "b.test:2";
const RETAINED = "c.test:3";
const STRANGER = "d.test:4";
const INTENT: RoomsIntent = {
  version: 1,
  own: OWN,
  allow: aclAllow([OWN, RETAINED]),
  retained: [RETAINED],
  ghosts: [],
  closing: [
    { serverName: PARTNER, name: "org-b", mode: "contained", after: "read_only", unclosable: "list" },
  ],
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
    joinRule: fc.constantFrom("invite", "public", "knock", "restricted"),
    acl: fc.constantFrom(
      undefined,
      { allow: ["*"] },
      { allow: ["*"], deny: ["evil.test", "*.bad.test"] },
      { allow: INTENT.allow, allow_ip_literals: false },
      { allow: INTENT.allow, deny: ["evil.test", "*.bad.test"], allow_ip_literals: false },
    ),
  })
  .map(({ creator, memberships, levels, isTwelve, joinRule, acl }) => ({
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
    unreadable: [],
    joinRule,
    single: new Map(),
    predecessor: undefined,
  }));

/** The journal of a partner because of whom every room was about to be replaced. */
const BEGUN = { room: () => ({ bans: new Map(), replace: {} }) } as unknown as Journal;

const plan = (room: RoomState, earlier?: Earlier) =>
  planRoom(
    {
      intent: INTENT,
      operatorId: `@root:${OWN}` as UserId,
      journals: new Map([[PARTNER, BEGUN]]),
      tokens: { unusable: new Set() },
      clock: new ManualClock(0),
    } as unknown as RoomsSession,
    room,
    earlier,
  );

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
            const moderated = (room.acl?.content.deny ?? []) as string[];
            for (const name of moderated) assert.ok(step.content.deny.includes(name), name);
          }
        }
      }),
    );
  });

  it("a room needs two rounds, and then nothing is planned again [PLN-2]", () => {
    fc.assert(
      fc.property(rooms, (room) => {
        let state = room;
        for (let round = 0; round < 2; round++) {
          const { steps, actor } = plan(state);
          if (actor !== undefined) state = afterSteps(state, steps, actor);
        }
        const { steps, obstacles } = plan(state);
        assert.deepEqual(steps, []);
        if (obstacles.length === 0) assert.deepEqual(presentOf(state, PARTNER), []);
      }),
    );
  });

  const member = (membership: Member["membership"]): Member => ({
    membership,
    sender: "",
    eventId: "$m" as EventId,
  });

  /** A room that a user of ours has made, with these others in it. */
  function ours(acl: FoundAcl | undefined, ...others: readonly string[]): RoomState {
    const creator = `@one:${OWN}` as UserId;
    return {
      ...{ roomId: "!room" as RoomId, version: "12", creator, federates: true, unreadable: [] },
      members: new Map([creator, ...others].map((user) => [user as UserId, member("join")])),
      power: { content: { invite: 100, events_default: 100 }, creator, privileged: new Set([creator]) },
      acl: acl === undefined ? undefined : { content: acl, eventId: "$acl" as EventId },
      ...{ joinRule: "invite", single: new Map(), predecessor: undefined },
    };
  }

  it("users who left a room that anybody may join are banned where another server could let them in [PLN-2]", () => {
    const former = `@gone:${PARTNER}` as UserId;
    const bannedIn = (joinRule: string, ...others: readonly string[]) => {
      const room = ours({ allow: INTENT.allow, allow_ip_literals: false }, ...others);
      const members = new Map(room.members).set(former, member("leave"));
      return plan({ ...room, joinRule, members }).steps.flatMap((step) =>
        step.kind === "ban" ? [step.user] : [],
      );
    };
    assert.deepEqual(bannedIn("public", `@x:${RETAINED}`), [former]);
    assert.deepEqual(bannedIn("restricted", `@x:${RETAINED}`), [former]);
    assert.deepEqual(bannedIn("invite", `@x:${RETAINED}`), [], "nobody lets them in");
    assert.deepEqual(bannedIn("public"), [], "our own homeserver alone decides");
  });

  it("a room of ours with a member of an unregistered server is closed by a denial [PLN-2]", () => {
    const room = ours(undefined, `@x:${STRANGER}`);
    const { steps, obstacles } = plan(room);
    assert.deepEqual(obstacles, []);
    const [step, ...more] = steps;
    assert.deepEqual(more, []);
    assert.ok(step?.kind === "set_acl");
    assert.deepEqual(step.content, {
      allow: ["*"],
      deny: ["b.test", PARTNER],
      allow_ip_literals: false,
    });
    assert.deepEqual(plan({ ...room, acl: { content: step.content, eventId: "$acl" as EventId } }).steps, []);
  });

  it("users of another server name on the partner's host are banned with the partner's, and keep no room open [PLN-2]", () => {
    const others = ["b.test", "b.test:8448", "B.test:2"].map((server) => `@spy:${server}` as UserId);
    for (const creator of [`@one:${OWN}`, `@x:${RETAINED}`] as UserId[]) {
      const room = { ...ours({ allow: ["*"] }, ...others, `@x:${RETAINED}`), creator };
      const first = plan(room);
      assert.deepEqual(first.obstacles, []);
      assert.deepEqual(
        first.steps.map((step) => (step.kind === "ban" ? step.user : "")).sort(),
        [...others].sort(),
      );
      const [step, ...more] = plan(afterSteps(room, first.steps, `@one:${OWN}` as UserId)).steps;
      assert.deepEqual(more, []);
      assert.ok(step?.kind === "set_acl" && deniedByEnforcement(step.content, PARTNER));
      assert.ok(!deniedByEnforcement(step.content, RETAINED));
    }
  });

  it("a room that members of another room may join has the ACL before anybody has come [PLN-2]", () => {
    const restricted = (joinRule: string) =>
      plan({ ...ours(undefined), joinRule }).steps.map(({ kind }) => kind);
    assert.deepEqual(restricted("invite"), []);
    for (const joinRule of ["restricted", "knock_restricted", "knock", "public"]) {
      assert.deepEqual(restricted(joinRule), ["set_acl"], joinRule);
    }
  });

  it("a moderator's denials stay in a room of ours, and let nobody back whom the registry admits [PLN-2]", () => {
    const deny = ["*.bad.test", "c.test"];
    const [step] = plan(ours({ allow: ["*"], deny })).steps;
    assert.ok(step?.kind === "set_acl");
    assert.deepEqual(step.content, { allow: [...INTENT.allow], deny, allow_ip_literals: false });
    assert.equal(deniedByEnforcement(step.content, RETAINED), true);
    assert.deepEqual(plan(ours({ allow: INTENT.allow, deny, allow_ip_literals: false })).steps, []);
  });

  it("an ACL of ours never denies our own server, nor anybody admitted where a user of the partner has set it [PLN-2]", () => {
    const found = { allow: ["*"], deny: ["*.bad.test", "a.*", "c.test"] };
    const denied = (sender: string) => {
      const room = ours(found);
      const [step] = plan({ ...room, acl: { content: found, eventId: "$acl" as EventId, sender } }).steps;
      return step?.kind === "set_acl" ? step.content.deny : undefined;
    };
    assert.deepEqual(denied(`@one:${OWN}`), ["*.bad.test", "c.test"]);
    assert.deepEqual(denied(`@one:${PARTNER}`), ["*.bad.test"]);
  });

  it("an ACL that others have filled keeps a room of ours open to nobody, and is replaced where it is another's [PLN-2]", () => {
    const names = Array.from({ length: 4_000 }, (_, number) => `server-${number}.test`);
    const [step] = plan(ours({ allow: ["*"], deny: names })).steps;
    assert.ok(step?.kind === "set_acl");
    assert.deepEqual(step.content, { allow: [...INTENT.allow], deny: [], allow_ip_literals: false });
    const theirs = { ...ours({ allow: ["*"], deny: names }), creator: `@one:${RETAINED}` as UserId };
    const found = plan(theirs);
    assert.deepEqual(found.steps, []);
    assert.deepEqual(found.obstacles, [{ partner: PARTNER, reason: "acl_too_long" }]);
  });

  it("an entry of an ACL that is longer than a server name is taken out of a room of ours, as no homeserver may compile it [PLN-2]", () => {
    const acl = { allow: INTENT.allow, deny: ["?".repeat(256)], allow_ip_literals: false };
    const [step] = plan(ours(acl)).steps;
    assert.ok(step?.kind === "set_acl");
    assert.deepEqual(step.content.deny, []);
  });

  it("the ACL does not wait for the bans where there are many, or where users have come meanwhile [PLN-2]", () => {
    const users = (count: number) =>
      Array.from({ length: count }, (_, number) => `@user-${number}:${PARTNER}`);
    const kinds = (count: number, isOverrun = false) =>
      plan(ours(undefined, ...users(count)), { refused: new Set(), isOverrun }).steps.map(({ kind }) => kind);
    assert.ok(!kinds(50).includes("set_acl"));
    assert.equal(kinds(51)[0], "set_acl");
    assert.deepEqual(kinds(1, true), ["set_acl", "ban"]);
  });

  it("a step that the homeserver has refused keeps no other from being taken [PLN-2]", () => {
    const [first, second] = ["@a", "@b"].map((name) => `${name}:${PARTNER}`) as [string, string];
    const refused = new Set([`ban ${first}`]);
    const found = plan(ours(undefined, first, second), { refused, isOverrun: false });
    assert.deepEqual(
      found.steps.map((step) => (step.kind === "ban" ? step.user : "")),
      [second],
    );
    assert.deepEqual(found.obstacles, [{ partner: PARTNER, reason: "refused" }]);
  });

  it("levels that were written as text or fractions are sent as integers, which alone a homeserver takes [PLN-2]", () => {
    const event = (type: string, content: object, state_key = "") => ({
      ...{
        type,
        state_key,
        sender: `@one:${OWN}`,
        event_id: "$e",
        content: content as Record<string, unknown>,
      },
    });
    const levels = {
      users: { [`@one:${OWN}`]: "100", [`@two:${PARTNER}`]: 1.5 },
      ban: " 50 ",
      events: { "m.x": "7" },
    };
    const room = readRoomState("!room" as RoomId, [
      event("m.room.create", { room_version: "9" }),
      event("m.room.power_levels", levels),
      ...[`@one:${OWN}`, `@two:${PARTNER}`].map((user) =>
        event("m.room.member", { membership: "join" }, user),
      ),
    ]);
    const [step] = plan(room).steps;
    assert.ok(step?.kind === "raise_invite");
    assert.deepEqual(step.content, {
      ...{
        users: { [`@one:${OWN}`]: 100, [`@two:${PARTNER}`]: 1 },
        ban: 50,
        events: { "m.x": 7 },
        invite: 50,
      },
    });
  });

  it("an ACL is read once for all servers that must stay, however many they are [PLN-2]", () => {
    const retained = Array.from({ length: 50 }, (_, number) => `p${number}.test`);
    let reads = 0;
    const counted = (deny: readonly string[]) => ({
      ...{ allow: ["*"], allow_ip_literals: false },
      get deny() {
        reads += 1;
        return deny;
      },
    });
    const event = (type: string, state_key: string, content: Readonly<Record<string, unknown>>) => ({
      ...{ type, state_key, sender: `@one:${OWN}`, event_id: "$e", content },
    });
    const room = readRoomState("!room" as RoomId, [
      event("m.room.create", "", { room_version: "12" }),
      event("m.room.server_acl", "", counted(retained.slice(1))),
    ]);
    assert.deepEqual(deniedRetained(room, counted(retained), { ...INTENT, retained }), [retained[0]]);
    assert.equal(reads, 2);
  });

  it("users are banned by their raw IDs, and a membership that names no server is out of reach [PLN-2]", () => {
    const raw = ["@a b", "@c\u00a0d", "@"].map((name) => `${name}:${PARTNER}`);
    const event = (type: string, state_key: string, content: object, sender = `@one:${OWN}`) => ({
      ...{ type, state_key, sender, content: content as Record<string, unknown>, event_id: "$v1 \u00e9:x" },
    });
    const room = readRoomState("!r oom\u00e9" as RoomId, [
      event("m.room.create", "", { room_version: "10" }, `@o ne:${OWN}`),
      event("m.room.member", `@one:${OWN}`, { membership: "join" }),
      event("m.room.power_levels", "", { users: { [`@one:${OWN}`]: 100 }, invite: 100 }),
      ...raw.map((user) => event("m.room.member", user, { membership: "join" })),
      event("m.room.member", "nobody", { membership: "join" }),
      event("m.room.member", `no-sigil:${PARTNER}`, { membership: "invite" }),
    ]);
    assert.deepEqual(room.unreadable, ["nobody", `no-sigil:${PARTNER}`], "no homeserver bans either");
    assert.equal(isOurs(room, OWN), true, "its creator's ID is outside the grammar as well");
    const { steps, obstacles } = plan(room);
    assert.deepEqual(steps.map((step) => (step.kind === "ban" ? step.user : "")).sort(), [...raw].sort());
    assert.deepEqual(obstacles, [{ partner: PARTNER, reason: "unreadable_member" }]);
  });
});
