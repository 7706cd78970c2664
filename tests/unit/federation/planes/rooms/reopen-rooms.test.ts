import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { DrawbridgeError } from "../../../../../src/domain/errors.ts";
import {
  type EventId,
  type RoomId,
  type ServerName,
  serverOf,
  type UserId,
} from "../../../../../src/domain/identifiers.ts";
import { inviteAgain, reopenRooms } from "../../../../../src/federation/planes/rooms/reopen-rooms.ts";
import type { Member, RoomState } from "../../../../../src/federation/planes/rooms/room-state.ts";
import { roomsDrift } from "../../../../../src/federation/planes/rooms/runtime.ts";
import type { RoomsSession } from "../../../../../src/federation/planes/rooms/session.ts";
import {
  foldEntry,
  type JournalEntry,
  type RoomRecord,
} from "../../../../../src/federation/planes/rooms/undo-journal.ts";
import { ManualClock } from "../../../../support/manual-clock.ts";

const OWN = "a.test";
const PARTNER = "b.test" as ServerName;
const ROOM = "!room" as RoomId;
const NEXT = "!next" as RoomId;
const GHOSTS = [{ server: PARTNER, prefix: "bot-" }];
const ALICE = `@alice:${OWN}` as UserId;
const user = (name: string) => `@${name}:${PARTNER}` as UserId;
const [JOINED, INVITED, KNOCKED] = [user("joined"), user("invited"), user("knocked")];
const LIFTED: Readonly<Record<string, string>> = { [JOINED]: ALICE, [INVITED]: ALICE, [KNOCKED]: ALICE };

const RECORD: RoomRecord = {
  room: ROOM,
  bans: new Map([
    [JOINED, { before: "join", event: "$1" as EventId, actor: ALICE }],
    [INVITED, { before: "invite", event: "$2" as EventId, actor: ALICE }],
    [KNOCKED, { before: "knock", event: "$3" as EventId, actor: ALICE }],
  ]),
};

/** A room in which these users have left, each by whom. */
function roomState(left: Readonly<Record<string, string>>, more: Partial<RoomState> = {}): RoomState {
  const member = (membership: Member["membership"], sender: string): Member => ({
    membership,
    sender,
    eventId: "$m" as EventId,
  });
  return {
    roomId: ROOM,
    version: "12",
    creator: ALICE,
    federates: true,
    members: new Map([
      [ALICE, member("join", ALICE)],
      ...Object.entries(left).map(([who, by]): [UserId, Member] => [who as UserId, member("leave", by)]),
    ]),
    power: { content: { invite: 50 }, creator: ALICE, privileged: new Set([ALICE]) },
    acl: undefined,
    unreadable: [],
    joinRule: "invite",
    single: new Map(),
    predecessor: undefined,
    ...more,
  };
}

type Answer = "invited" | "refused" | "limited" | "unreachable";

function scene({ answer = "invited" as Answer } = {}) {
  const asked: string[] = [];
  const session = {
    intent: { own: OWN, allow: [OWN, PARTNER], retained: [PARTNER], closing: [], ghosts: GHOSTS },
    operatorId: `@operator:${OWN}`,
    journals: new Map([[PARTNER, { append: async () => undefined }]]),
    clock: new ManualClock(0),
    tokens: {
      unusable: new Set(),
      as: async (userId: UserId) => ({
        userId,
        invite: async (room: RoomId, who: UserId) => {
          if (answer === "unreachable") throw new DrawbridgeError("homeserver_unavailable", "no answer");
          asked.push(`${userId} ${room} ${who}`);
          return answer;
        },
      }),
    },
  } as unknown as RoomsSession;
  const counts = { invited: 0, refused: 0 };
  const invite = (record: RoomRecord, state: RoomState) =>
    inviteAgain({ session, partner: PARTNER, record, state }, Number.POSITIVE_INFINITY, counts);
  return { asked, counts, invite };
}

describe("inviteAgain", () => {
  it("after a restore the user who banned invites those who were in the room or invited [PLN-2]", async () => {
    const { asked, counts, invite } = scene();
    // Another server on the partner's host was put out with it, and is nobody who is admitted.
    const neighbour = `${JOINED}:8448` as UserId;
    const ban = { before: "join", event: "$4" as EventId, actor: ALICE } as const;
    const record = { ...RECORD, bans: new Map([...RECORD.bans, [neighbour, ban]]) };
    assert.equal(await invite(record, roomState({ ...LIFTED, [neighbour]: ALICE })), undefined);
    assert.deepEqual(asked, [`${ALICE} ${ROOM} ${INVITED}`, `${ALICE} ${ROOM} ${JOINED}`]);
    assert.deepEqual(counts, { invited: 2, refused: 0 });
  });

  it("a user whose membership somebody else has changed since is not invited again [PLN-2]", async () => {
    const { asked, invite } = scene();
    await invite(RECORD, roomState({ [JOINED]: JOINED, [INVITED]: `@moderator:${OWN}` }));
    assert.deepEqual(asked, []);
  });

  it("people are invited again before ghosts, which join at once [PLN-2]", async () => {
    const [ghost, person] = [user("bot-docs"), user("carol")];
    const ban = { before: "join", event: "$1" as EventId, actor: ALICE } as const;
    const { asked, invite } = scene();
    const record = { room: ROOM, bans: new Map([ghost, person].map((who) => [who, ban])) };
    await invite(record, roomState({ [ghost]: ALICE, [person]: ALICE }));
    assert.deepEqual(
      asked.map((one) => JSON.stringify(one).includes(person)),
      [true, false],
    );
  });

  it("nobody is invited again after a removal [PLN-2]", async () => {
    const removed = foldEntry(RECORD, { act: "removed", room: ROOM });
    assert.ok(removed !== undefined);
    const after = scene();
    assert.equal(await after.invite(removed, roomState(LIFTED)), undefined);
    assert.deepEqual(after.asked, []);
  });

  it("users of a replaced room are invited into its replacement, banned or not [PLN-2]", async () => {
    const creator = user("creator");
    const replaced = foldEntry(RECORD, {
      act: "replace",
      room: ROOM,
      creator: ALICE,
      users: [{ user: creator, before: "join" }],
    });
    assert.ok(replaced !== undefined);
    const { asked, invite } = scene();
    const left = { [INVITED]: ALICE, [JOINED]: JOINED };
    assert.equal(await invite(replaced, roomState(left, { roomId: NEXT })), undefined);
    // Who was put out of the new room since is not invited; who left it may have been taken out by its own homeserver.
    assert.deepEqual(asked, [`${ALICE} ${NEXT} ${creator}`, `${ALICE} ${NEXT} ${JOINED}`]);
  });

  it("who was invited again before is invited again when the room is replaced since [PLN-2]", async () => {
    const entries: readonly JournalEntry[] = [
      { act: "invited_again", room: ROOM, user: JOINED },
      { act: "replace", room: ROOM, creator: ALICE, users: [{ user: JOINED, before: "join" }] },
    ];
    const record = entries.reduce<RoomRecord | undefined>(foldEntry, RECORD);
    const { asked, invite } = scene();
    assert.ok(record !== undefined);
    await invite(record, roomState({}, { roomId: NEXT }));
    assert.deepEqual(asked, [`${ALICE} ${NEXT} ${INVITED}`, `${ALICE} ${NEXT} ${JOINED}`]);
  });

  it("a refused invitation is not repeated, and one that never arrived is [PLN-2]", async () => {
    const refused = scene({ answer: "refused" });
    assert.equal(await refused.invite(RECORD, roomState(LIFTED)), undefined);
    assert.deepEqual(refused.counts, { invited: 0, refused: 2 });
    const unreachable = scene({ answer: "unreachable" });
    assert.equal(await unreachable.invite(RECORD, roomState(LIFTED)), "not_invited");
    const limited = scene({ answer: "limited" });
    assert.equal(await limited.invite(RECORD, roomState(LIFTED)), "being_invited");
    assert.deepEqual(limited.counts, { invited: 0, refused: 0 });
  });

  it("nobody is invited into a room whose ACL denies them, or when nobody has the power to invite [PLN-2]", async () => {
    const { asked, invite } = scene();
    const acl = { content: { allow: [OWN] }, eventId: "$acl" as EventId };
    assert.equal(await invite(RECORD, roomState(LIFTED, { acl })), "not_invited");
    const power = { content: { invite: 50 }, creator: undefined, privileged: new Set<string>() };
    assert.equal(await invite(RECORD, roomState(LIFTED, { power })), "no_power");
    assert.deepEqual(asked, []);
  });

  it("a user who is present, or banned by anybody, is never invited [PLN-2]", async () => {
    const memberships = fc.constantFrom("join", "invite", "knock", "ban", "leave");
    await fc.assert(
      fc.asyncProperty(memberships, fc.constantFrom(ALICE, JOINED), async (membership, sender) => {
        const { asked, invite } = scene();
        const state = roomState({});
        const members = new Map(state.members);
        members.set(JOINED, {
          membership: membership as Member["membership"],
          sender,
          eventId: "$m" as EventId,
        });
        await invite(RECORD, { ...state, members });
        assert.equal(asked.length, membership === "leave" && sender === ALICE ? 1 : 0);
      }),
    );
  });
});

/** The state of a room of Alice's in which these are banned, by the events $1, $2 and so on. */
function stateWithBanned(...banned: readonly UserId[]) {
  const state = (type: string, state_key: string, content: object, event_id = `$${type}`) => ({
    ...{ type, state_key, sender: ALICE, event_id, origin_server_ts: 0, content },
  });
  return [
    state("m.room.create", "", { room_version: "10" }),
    state("m.room.power_levels", "", { users: { [ALICE]: 100 } }),
    state("m.room.member", ALICE, { membership: "join" }),
    ...banned.map((user, index) => state("m.room.member", user, { membership: "ban" }, `$${index + 1}`)),
  ];
}

describe("reopenRooms", () => {
  it("what was lifted before the homeserver refuses a step counts as changed [PLN-2]", async () => {
    const events = stateWithBanned(JOINED, INVITED);
    const lifted: UserId[] = [];
    const setMembership = async (_room: RoomId, who: UserId) => {
      if (lifted.length > 0) throw new DrawbridgeError("homeserver_refused", "no more of them");
      lifted.push(who);
    };
    const journal = { rooms: [RECORD], room: () => RECORD, append: async () => undefined };
    const session = {
      intent: { own: OWN, allow: [OWN, PARTNER], retained: [PARTNER], closing: [], ghosts: [] },
      operatorId: `@operator:${OWN}`,
      operator: { roomState: async () => events },
      journals: new Map([[PARTNER, journal]]),
      clock: new ManualClock(0),
      home: { differing: async () => [], rooms: async () => [] },
      tokens: { unusable: new Set(), as: async (userId: UserId) => ({ userId, setMembership }) },
      note: () => undefined,
    } as unknown as RoomsSession;
    const { changed, outOfReach = [] } = await reopenRooms(session);
    assert.deepEqual(lifted, [JOINED]);
    assert.deepEqual(
      [changed, outOfReach.map(({ subject, reason }) => [subject, reason])],
      [true, [[ROOM, "refused"]]],
    );
  });

  it("a room that one partner does not get back is opened again to another one [PLN-2]", async () => {
    const other = "c.test" as ServerName;
    const carol = `@carol:${other}` as UserId;
    const events = stateWithBanned(JOINED, carol);
    const lifted: UserId[] = [];
    const setMembership = async (_room: RoomId, who: UserId) => {
      if (who === JOINED) throw new DrawbridgeError("homeserver_refused", "not this one");
      lifted.push(who);
    };
    const journalOf = (who: UserId, event: string) => {
      const ban = { before: "join", event: event as EventId, actor: ALICE } as const;
      const record: RoomRecord = { room: ROOM, bans: new Map([[who, ban]]) };
      return { rooms: [record], room: () => record, append: async () => undefined };
    };
    const journals = [
      [PARTNER, journalOf(JOINED, "$1")],
      [other, journalOf(carol, "$2")],
    ] as const;
    const session = {
      intent: { own: OWN, allow: [OWN, PARTNER, other], retained: [PARTNER, other], closing: [], ghosts: [] },
      operatorId: `@operator:${OWN}`,
      operator: { roomState: async () => events },
      journals: new Map<string, unknown>(journals),
      clock: new ManualClock(0),
      home: { differing: async () => [], rooms: async () => [] },
      tokens: { unusable: new Set(), as: async (userId: UserId) => ({ userId, setMembership }) },
      note: () => undefined,
    } as unknown as RoomsSession;
    const { outOfReach = [] } = await reopenRooms(session);
    assert.deepEqual(lifted, [carol]);
    assert.deepEqual(
      outOfReach.map(({ partner, reason }) => [partner, reason]),
      [[PARTNER, "refused"]],
    );
  });

  it("a room from which not everybody was moved yet is opened again itself [PLN-2]", async () => {
    const events = stateWithBanned(JOINED);
    const calls: string[] = [];
    const entries: readonly JournalEntry[] = [
      { act: "replace", room: ROOM, creator: ALICE, users: [] },
      { act: "replacement", room: ROOM, to: NEXT, aliases: [], members: [ALICE], invited: [] },
    ];
    const ban = { before: "join", event: "$1" as EventId, actor: ALICE } as const;
    const record = entries.reduce<RoomRecord | undefined>(foldEntry, {
      ...{ room: ROOM, bans: new Map([[JOINED, ban]]) },
    });
    let isBlocked = false;
    const session = {
      intent: { own: OWN, allow: [OWN, PARTNER], retained: [PARTNER], closing: [], ghosts: [] },
      operatorId: `@operator:${OWN}`,
      operator: { roomState: async () => events, isBlocked: async () => isBlocked },
      journals: new Map([[PARTNER, { rooms: [record], room: () => record, append: async () => undefined }]]),
      clock: new ManualClock(0),
      home: { differing: async () => [], rooms: async () => [] },
      tokens: {
        unusable: new Set(),
        as: async (userId: UserId) => ({
          userId,
          setMembership: async (room: RoomId, who: UserId) => void calls.push(`unban ${room} ${who}`),
        }),
      },
      note: (text: string) => void calls.push(text),
    } as unknown as RoomsSession;
    await reopenRooms(session);
    assert.equal(calls[0], `unban ${ROOM} ${JOINED}`);
    calls.length = 0;
    isBlocked = true;
    await reopenRooms(session);
    assert.match(String(calls[0]), /does not come back/);
  });

  it("a partner whose journal is damaged gets nothing back, and the drift check names it [PLN-2]", async () => {
    const other = "c.test" as ServerName;
    const lifted: UserId[] = [];
    const ban = { before: "join", event: "$1" as EventId, actor: ALICE } as const;
    const record: RoomRecord = { room: ROOM, bans: new Map([[JOINED, ban]]) };
    const journal = { rooms: [record], room: () => record, append: async () => undefined };
    const damage = new DrawbridgeError("state_unreadable", "line 1 is no entry");
    const session = {
      intent: { own: OWN, allow: [OWN, PARTNER, other], retained: [PARTNER, other], closing: [], ghosts: [] },
      operatorId: `@operator:${OWN}`,
      operator: { rooms: async () => [], roomState: async () => stateWithBanned(JOINED) },
      journals: new Map<string, unknown>([
        [other, { ...journal, damage }],
        [PARTNER, journal],
      ]),
      clock: new ManualClock(0),
      home: { differing: async () => [], rooms: async () => [] },
      tokens: {
        unusable: new Set(),
        as: async (userId: UserId) => ({
          userId,
          setMembership: async (_room: RoomId, who: UserId) => void lifted.push(who),
          invite: async () => "invited",
        }),
      },
      note: () => undefined,
    } as unknown as RoomsSession;
    assert.deepEqual(await reopenRooms(session), { changed: true, outOfReach: [] });
    assert.deepEqual(lifted, [JOINED], "once, because of the journal that is whole");
    const drift = [{ subject: "rooms/c.test.jsonl", kind: "out_of_reach", found: null }];
    assert.deepEqual(await roomsDrift(session, {}), drift);
  });

  it("a server that does not show the ACLs is waited for once, and what is unproven named once, however many partners are restored [PLN-2]", async () => {
    const others = ["c.test", "d.test", "e.test"] as ServerName[];
    const retained = [...others, "f.test"];
    const events = [
      ...stateWithBanned(),
      {
        ...{ type: "m.room.server_acl", state_key: "", sender: ALICE, event_id: "$acl" },
        ...{ origin_server_ts: 0, content: { allow: [OWN, ...retained], allow_ip_literals: false } },
      },
      {
        ...{ type: "m.room.member", state_key: "@frank:f.test", sender: "@frank:f.test" },
        ...{ event_id: "$frank", origin_server_ts: 0, content: { membership: "join" } },
      },
    ];
    const record: RoomRecord = { room: ROOM, bans: new Map() };
    const journal = { rooms: [record], room: () => record, append: async () => undefined };
    let now = 0;
    const sleep = async (ms: number) => {
      now += ms;
    };
    const session = {
      intent: { own: OWN, allow: [OWN, ...retained], retained, closing: [], ghosts: [] },
      operatorId: `@operator:${OWN}`,
      operator: { roomState: async () => events },
      journals: new Map(others.map((server) => [server, journal])),
      clock: { now: () => now, sleep },
      home: {
        differing: async () => {
          throw new DrawbridgeError("homeserver_refused", "no border module");
        },
      },
      signed: { request: async () => ({ status: 404 }) },
      tokens: {
        unusable: new Set(),
        as: async (userId: UserId) => ({ userId, putState: async () => "$anew" }),
      },
      note: () => undefined,
    } as unknown as RoomsSession;
    const { outOfReach = [] } = await reopenRooms(session);
    assert.ok(now < 35_000, `${now} ms`);
    assert.deepEqual(
      outOfReach.map(({ partner, subject, reason }) => [partner, subject, reason]),
      others.flatMap((partner) => [
        [partner, ROOM, "unproven_at_home"],
        [partner, `${ROOM} at f.test`, "unproven_at_retained"],
      ]),
    );
  });

  it("a journal of a server that is no partner any more opens no room [CON-1] [PLN-2]", async () => {
    const journal = {
      get rooms() {
        return assert.fail("nothing is taken back");
      },
    };
    const session = {
      intent: { own: OWN, allow: [OWN], retained: [], closing: [], ghosts: [] },
      journals: new Map([[PARTNER, journal]]),
    } as unknown as RoomsSession;
    assert.deepEqual(await reopenRooms(session), { changed: false });
  });

  it("a pass ends although many are to be invited slowly, and the next one goes on with them [PLN-2]", async () => {
    const users = Array.from({ length: 60 }, (_, number) => user(`user${number}`));
    const invited = new Set<UserId>();
    const refusing = new Set(users.toSorted().slice(0, 45));
    const member = (who: UserId, membership: string) => ({
      ...{ type: "m.room.member", state_key: who, sender: ALICE, event_id: "$m", content: { membership } },
    });
    const events = () => [
      { ...member(ALICE, "join"), type: "m.room.create", state_key: "", content: { room_version: "12" } },
      member(ALICE, "join"),
      ...users.map((who) => member(who, invited.has(who) ? "invite" : "leave")),
    ];
    const ban = { before: "join", event: "$b" as EventId, actor: ALICE } as const;
    let record: RoomRecord | undefined = { room: ROOM, bans: new Map(users.map((who) => [who, ban])) };
    const clock = new ManualClock(0);
    const waits: (number | undefined)[] = [];
    const invite = async (_room: RoomId, who: UserId, limitedMaxMs?: number) => {
      waits.push(limitedMaxMs);
      await clock.advance(3_000);
      if (refusing.has(who)) return "refused";
      invited.add(who);
      return "invited";
    };
    const append = async (entry: JournalEntry) => {
      record = foldEntry(record, entry);
    };
    const session = {
      intent: { own: OWN, allow: [OWN, PARTNER], retained: [PARTNER], closing: [], ghosts: [] },
      operatorId: `@operator:${OWN}`,
      operator: { roomState: async () => events() },
      journals: new Map([
        [
          PARTNER,
          {
            get rooms() {
              return record === undefined ? [] : [record];
            },
            room: () => record,
            append,
          },
        ],
      ]),
      ...{ clock, home: { differing: async () => [], rooms: async () => [] }, note: () => undefined },
      tokens: { unusable: new Set(), as: async (userId: UserId) => ({ userId, invite }) },
    } as unknown as RoomsSession;
    const reasons = async () => (await reopenRooms(session)).outOfReach?.map((one) => one.reason);
    assert.deepEqual([await reasons(), invited.size, waits.length], [["being_invited"], 0, 40]);
    assert.deepEqual([await reasons(), invited.size, waits.length], [[], 15, 60]);
    assert.equal(record, undefined, "nothing is left to be done");
    assert.deepEqual([waits[0], waits[39]], [120_000, 3_000], "none is waited for beyond the time");
  });

  it("many partners share the time in which one pass invites [PLN-2]", async () => {
    const partners = Array.from({ length: 6 }, (_, number) => `p${number}.test` as ServerName);
    const usersOf = (server: ServerName) =>
      Array.from({ length: 60 }, (_, number) => `@user${number}:${server}` as UserId);
    const member = (who: UserId, membership: string) => ({
      ...{ type: "m.room.member", state_key: who, sender: ALICE, event_id: "$m", content: { membership } },
    });
    const events = [
      { ...member(ALICE, "join"), type: "m.room.create", state_key: "", content: { room_version: "12" } },
      member(ALICE, "join"),
      ...partners.flatMap(usersOf).map((who) => member(who, "leave")),
    ];
    const ban = { before: "join", event: "$b" as EventId, actor: ALICE } as const;
    const journalOf = (server: ServerName) => {
      const record = { room: ROOM, bans: new Map(usersOf(server).map((who) => [who, ban])) };
      return { rooms: [record], room: () => record, append: async () => undefined };
    };
    const clock = new ManualClock(0);
    const invited = new Set<ServerName>();
    const invite = async (_room: RoomId, who: UserId) => {
      await clock.advance(3_000);
      invited.add(serverOf(who));
      return "invited";
    };
    const session = {
      intent: { own: OWN, allow: [OWN, ...partners], retained: partners, closing: [], ghosts: [] },
      operatorId: `@operator:${OWN}`,
      operator: { roomState: async () => events },
      journals: new Map(partners.map((server) => [server, journalOf(server)])),
      ...{ clock, home: { differing: async () => [], rooms: async () => [] }, note: () => undefined },
      tokens: { unusable: new Set(), as: async (userId: UserId) => ({ userId, invite }) },
    } as unknown as RoomsSession;
    await reopenRooms(session);
    assert.ok(clock.now() <= 140_000, `a containment would wait ${clock.now()} ms`);
    assert.deepEqual([...invited].sort(), partners, "each partner has its share");
  });

  for (const [what, broken] of [
    ["its state", { roomState: true }],
    ["a token", { tokens: true }],
  ] as const) {
    it(`a room of which the homeserver does not give ${what} is named, and the others are reopened [PLN-2]`, async () => {
      const hung = "!hung" as RoomId;
      const unavailable = () =>
        new DrawbridgeError("homeserver_unavailable", "the homeserver did not answer");
      const state = (
        type: string,
        state_key: string,
        sender: UserId,
        content: object,
        event_id = `$${type}`,
      ) => ({
        ...{ type, state_key, sender, event_id, origin_server_ts: 0, content },
      });
      const mallory = `@mallory:${OWN}` as UserId;
      const eventsOf = (local: UserId) => [
        state("m.room.create", "", local, { room_version: "10" }),
        state("m.room.power_levels", "", local, { users: { [local]: 100 } }),
        state("m.room.member", local, local, { membership: "join" }),
        state("m.room.member", JOINED, ALICE, { membership: "ban" }, "$1"),
      ];
      const lifted: RoomId[] = [];
      const setMembership = async (room: RoomId) => void lifted.push(room);
      const records = [{ ...RECORD, room: hung }, RECORD];
      const append = async (entry: { act: string; room: RoomId }) =>
        void journaled.push(`${entry.act} ${entry.room}`);
      const journaled: string[] = [];
      const session = {
        intent: { own: OWN, allow: [OWN, PARTNER], retained: [PARTNER], closing: [], ghosts: [] },
        operatorId: `@operator:${OWN}`,
        operator: {
          operatorOf: async () => `@operator:${OWN}`,
          roomState: async (room: RoomId) => {
            if (room !== hung) return eventsOf(ALICE);
            if ("roomState" in broken) throw unavailable();
            return eventsOf(mallory);
          },
        },
        journals: new Map([[PARTNER, { rooms: records, room: () => undefined, append }]]),
        clock: new ManualClock(0),
        home: { differing: async () => [], rooms: async () => [] },
        tokens: {
          unusable: new Set(),
          as: async (userId: UserId) => {
            if (userId === mallory) throw unavailable();
            return { userId, setMembership };
          },
        },
        note: () => undefined,
      } as unknown as RoomsSession;
      const { outOfReach = [] } = await reopenRooms(session);
      assert.deepEqual([...new Set(lifted)], [ROOM]);
      assert.deepEqual(journaled, [`lifted ${ROOM}`]);
      assert.deepEqual(
        outOfReach.map(({ subject, reason }) => [subject, reason]),
        [[hung, "roomState" in broken ? "unread" : "refused"]],
      );
    });
  }
});
