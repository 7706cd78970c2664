import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { DrawbridgeError } from "../../../../../src/domain/errors.ts";
import type { RoomId } from "../../../../../src/domain/identifiers.ts";
import { deniedByEnforcement } from "../../../../../src/federation/planes/rooms/acl.ts";
import { closeRooms } from "../../../../../src/federation/planes/rooms/close-rooms.ts";
import { reopenRooms } from "../../../../../src/federation/planes/rooms/reopen-rooms.ts";
import type { ManualClock } from "../../../../support/manual-clock.ts";
import {
  ALICE,
  acl,
  admit,
  BOB,
  CAROL,
  type Content,
  FakeHomeserver,
  joined,
  madeBy,
  refused,
  type State,
  unavailable,
} from "../../../../support/rooms-homeserver.ts";

describe("closeRooms", () => {
  it("a room whose state does not come is named, and keeps no other from being closed [CON-1] [PLN-2]", async (t) => {
    const homeserver = new FakeHomeserver();
    const hung = Array.from({ length: 9 }, (_, n) =>
      homeserver.room(`!0-${n}`, madeBy(BOB), ...joined(ALICE, BOB)),
    );
    const room = homeserver.room("!room", madeBy(ALICE), ...joined(ALICE, BOB, CAROL));
    const session = homeserver.session(t);
    const { roomState } = session.operator;
    session.operator.roomState = async (one) => {
      if (hung.includes(one)) throw unavailable();
      return roomState(one);
    };
    const { outOfReach } = await closeRooms(session);
    assert.deepEqual(homeserver.content(room, "m.room.member", BOB), { membership: "ban" });
    assert.ok(deniedByEnforcement(homeserver.content(room, "m.room.server_acl") ?? {}, "b.test"));
    assert.deepEqual(
      outOfReach?.map(({ partner, subject, reason }) => [partner, subject, reason]),
      hung.map((one) => ["b.test", one, "unread"]),
    );
  });

  it("a room that the homeserver's own list lacks is closed, and where the border module lists none no plane is in force [CON-1] [PLN-2]", async (t) => {
    const homeserver = new FakeHomeserver();
    const room = homeserver.room("!room", madeBy(ALICE), ...joined(ALICE, BOB));
    const session = homeserver.session(t);
    session.operator.rooms = async () => [];
    session.home.rooms = async () => Promise.reject(refused());
    const { outOfReach } = await closeRooms(session);
    assert.deepEqual(
      outOfReach?.map(({ partner, subject, reason }) => [partner, subject, reason]),
      [["b.test", "a.test", "unproven_at_home"]],
    );
    session.home.rooms = async () => [room];
    assert.deepEqual((await closeRooms(session)).outOfReach, []);
    assert.deepEqual(homeserver.content(room, "m.room.member", BOB), { membership: "ban" });
  });

  it("a token of the border module that cannot be read keeps no room open, and the plane is not in force [CON-1] [PLN-2]", async (t) => {
    const homeserver = new FakeHomeserver();
    const room = homeserver.room("!room", madeBy(ALICE), ...joined(ALICE, BOB));
    const session = homeserver.session(t);
    const lost = async () => Promise.reject(new DrawbridgeError("secret_unavailable", "the token is empty"));
    Object.assign(session.home, { rooms: lost, differing: lost, refresh: lost });
    const { outOfReach } = await closeRooms(session);
    assert.deepEqual(homeserver.content(room, "m.room.member", BOB), { membership: "ban" });
    assert.deepEqual(
      outOfReach?.map(({ partner, subject, reason }) => [partner, subject, reason]),
      [["b.test", "a.test", "unproven_at_home"]],
    );
  });

  it("a homeserver that answers nothing at all ends the pass [PLN-2]", async (t) => {
    const homeserver = new FakeHomeserver();
    homeserver.room("!room", madeBy(ALICE), ...joined(ALICE, BOB));
    const session = homeserver.session(t);
    session.operator.roomState = async () => Promise.reject(unavailable());
    session.operator.operatorOf = async () => Promise.reject(unavailable());
    await assert.rejects(closeRooms(session), { code: "homeserver_unavailable" });
  });

  it("a refused step keeps no other from being taken [CON-1] [PLN-2]", async (t) => {
    const homeserver = new FakeHomeserver();
    const room = homeserver.room("!room", ...[madeBy(ALICE), ...joined(ALICE, BOB, "@ann:b.test", CAROL)], [
      "m.room.power_levels",
      "",
      { invite: 0 },
    ]);
    homeserver.onChange = (type, key) => {
      if (type === "m.room.power_levels" || key === "@ann:b.test") throw refused();
    };
    const { outOfReach } = await closeRooms(homeserver.session(t));
    assert.deepEqual(homeserver.content(room, "m.room.member", BOB), { membership: "ban" });
    assert.ok(deniedByEnforcement(homeserver.content(room, "m.room.server_acl") ?? {}, "b.test"));
    assert.deepEqual(
      outOfReach?.map(({ reason }) => reason),
      ["refused"],
    );
  });

  it("a room is closed by the only user of ours who is not locked, however many are [CON-1] [PLN-2]", async (t) => {
    const homeserver = new FakeHomeserver();
    const locked = Array.from({ length: 12 }, (_, n) => `@former-${n}:a.test`);
    const users = Object.fromEntries([...locked, "@z:a.test"].map((user) => [user, 100]));
    const room = homeserver.room(
      ...(["!room", madeBy("@gone:c.test"), ...joined(...locked, "@z:a.test", BOB, CAROL)] as const),
      ["m.room.power_levels", "", { users }],
    );
    for (const user of locked) homeserver.locked.add(user);
    assert.deepEqual((await closeRooms(homeserver.session(t))).outOfReach, []);
    assert.deepEqual(homeserver.content(room, "m.room.member", BOB), { membership: "ban" });
  });

  it("users who come as fast as they are banned are kept out by the ACL [CON-1] [PLN-2]", async (t) => {
    const homeserver = new FakeHomeserver();
    const room = homeserver.room("!room", madeBy(ALICE), ...joined(ALICE, BOB, CAROL), [
      ...(["m.room.join_rules", "", { join_rule: "public" }] as const),
    ]);
    let users = 0;
    homeserver.onChange = (type) => {
      const denies = homeserver.content(room, "m.room.server_acl");
      if (type !== "m.room.member" || (denies !== undefined && deniedByEnforcement(denies, "b.test"))) return;
      homeserver.room(room, ...joined(`@user-${users++}:b.test`));
    };
    const { outOfReach } = await closeRooms(homeserver.session(t));
    assert.deepEqual(outOfReach, []);
    const members = [...(homeserver.rooms.get(room)?.values() ?? [])].filter(({ state_key }) => {
      return state_key.endsWith(":b.test");
    });
    assert.ok(members.length > 1 && members.every(({ content }) => content["membership"] === "ban"));
  });

  it("thousands who are invited into a room do not hold up the pass, and the next one goes on with them [CON-1] [PLN-2]", async (t) => {
    const homeserver = new FakeHomeserver();
    const many = Array.from({ length: 60 }, (_, number) => `@user-${number}:b.test`);
    const room = homeserver.room(
      ...(["!room", madeBy(ALICE), ...joined(ALICE, CAROL)] as const),
      ...many.map((user): State => ["m.room.member", user, { membership: "invite" }, CAROL]),
    );
    const session = homeserver.session(t);
    const clock = session.clock as ManualClock;
    const setMembership = async (...[to, user, membership]: [RoomId, string, string]) => {
      await clock.advance(5_000);
      return homeserver.acting(ALICE).setMembership(to, user, membership);
    };
    session.tokens.as = async (user) => ({ ...homeserver.acting(user), setMembership }) as never;
    const begun = clock.now();
    const { outOfReach } = await closeRooms(session);
    assert.ok(clock.now() - begun <= 250_000, `the border would wait ${clock.now() - begun} ms`);
    assert.deepEqual(
      outOfReach?.map(({ reason }) => reason),
      ["being_banned"],
    );
    assert.ok(deniedByEnforcement(homeserver.content(room, "m.room.server_acl") ?? {}, "b.test"));
    assert.deepEqual((await closeRooms(session)).outOfReach, []);
    for (const user of many) {
      assert.deepEqual(homeserver.content(room, "m.room.member", user), { membership: "ban" });
    }
  });

  it("nobody comes into a room of ours because a partner's room names it as the one that it replaces [CON-1] [PLN-2]", async (t) => {
    const homeserver = new FakeHomeserver();
    const secret = homeserver.room(
      "!secret",
      madeBy(ALICE),
      ...joined(ALICE),
      acl({ allow: ["a.test", "c.test"] }, ALICE),
    );
    homeserver.room(
      "!trap",
      madeBy(BOB, { predecessor: { room_id: secret } }),
      ...joined(BOB, "@adam:a.test", CAROL),
    );
    await closeRooms(homeserver.session(t));
    assert.equal(homeserver.made.length, 1);
    assert.deepEqual(homeserver.invited, [`${CAROL} !made-1`]);
    assert.equal(homeserver.content(secret, "m.room.member", "@adam:a.test"), undefined);
  });

  it("people go back to the room of ours that a partner's room has replaced, if all of them were there, but after a removal into a new one [CON-1] [PLN-2]", async (t) => {
    for (const mode of ["contained", "removed"] as const) {
      const homeserver = new FakeHomeserver();
      const former = homeserver.room(
        "!former",
        ...[madeBy(ALICE), ...joined(ALICE, CAROL), acl({ allow: ["a.test", "c.test"] }, ALICE)],
        ["m.room.member", BOB, { membership: "leave" }, BOB],
      );
      homeserver.room(
        ...(["!room", madeBy(BOB, { predecessor: { room_id: former } })] as const),
        ...joined(ALICE, BOB, CAROL),
      );
      const session = homeserver.session(t);
      Object.assign(session.intent.closing[0] ?? {}, { mode });
      assert.deepEqual((await closeRooms(session)).outOfReach, []);
      assert.equal(homeserver.made.length, mode === "contained" ? 0 : 1);
    }
  });

  it("a room stands for a partner's only if it is ours, closed, enforced, and one of ours may invite there [CON-1] [PLN-2]", async (t) => {
    const levels: State = ["m.room.power_levels", "", { invite: 50, users: {} }];
    const cases: Readonly<Record<string, readonly State[]>> = {
      "one of others": [madeBy(CAROL), ...joined(ALICE, CAROL)],
      "one in which nobody may invite": [madeBy("@left:a.test"), levels, ...joined(ALICE, CAROL)],
      "one whose ACL may not be enforced": [madeBy(ALICE), ...joined(ALICE, CAROL)],
      "one out of which a user of the partner cannot be put": [madeBy(ALICE), ...joined(ALICE, BOB, CAROL)],
    };
    for (const [what, states] of Object.entries(cases)) {
      const homeserver = new FakeHomeserver();
      const theirs = acl({ allow: ["a.test", "c.test"] }, ALICE);
      const gone: State = ["m.room.member", BOB, { membership: "leave" }, BOB];
      const former = homeserver.room("!former", gone, ...states, theirs);
      homeserver.room(
        ...(["!room", madeBy(BOB, { predecessor: { room_id: former } })] as const),
        ...joined(ALICE, BOB, CAROL),
      );
      homeserver.onChange = (_type, key, room) => {
        if (room === former && key === BOB) throw refused();
      };
      const session = homeserver.session(t);
      session.home.differing = async (rooms) => {
        if (what.includes("enforced") && rooms.includes(former)) throw refused();
        return [];
      };
      await closeRooms(session);
      assert.equal(homeserver.made.length, 1, what);
    }
  });

  it("a new room takes over what a homeserver accepts, and its ACL denies nobody who is to come [CON-1] [PLN-2]", async (t) => {
    const homeserver = new FakeHomeserver();
    homeserver.room(
      "!room",
      madeBy(BOB, { room_version: "org.matrix.hydra.11" }),
      ...joined(ALICE, BOB, CAROL, "@stranger:x.test"),
      acl({ allow: ["*"], deny: ["*.test", "evil.example"] }, BOB),
      ["m.room.name", "", {}, BOB],
      ["m.room.topic", "", { topic: 7 }, BOB],
      ["m.room.avatar", "", { url: "mxc://b.test/1", info: "x".repeat(40_000) }, BOB],
      ["m.room.encryption", "", { algorithm: "m.megolm.v1.aes-sha2", rotation_period_msgs: 9 }, BOB],
    );
    await closeRooms(homeserver.session(t));
    const [made] = homeserver.made;
    assert.ok(made !== undefined);
    const initial = made["initial_state"] as { type: string; content: Content }[];
    assert.deepEqual(
      initial.slice(0, -2).map(({ type, content }) => [type, content]),
      [
        [
          "m.room.server_acl",
          { allow: ["a.test", "c.test"], deny: ["evil.example"], allow_ip_literals: false },
        ],
        ["m.room.avatar", { url: "mxc://b.test/1" }],
        ["m.room.encryption", { algorithm: "m.megolm.v1.aes-sha2", rotation_period_msgs: 9 }],
      ],
    );
    assert.deepEqual((made["power_level_content_override"] as Content)["users"], {});
    assert.deepEqual(homeserver.invited, [`${CAROL} !made-1`], "nobody whom the registry does not admit");
  });

  it("a new room whose making was refused half-way is not the replacement [CON-1] [PLN-2]", async (t) => {
    const homeserver = new FakeHomeserver();
    const room = homeserver.room("!room", madeBy(BOB), ...joined(ALICE, BOB));
    homeserver.room("!half", madeBy(ALICE, { predecessor: { room_id: room } }), ...joined(ALICE));
    await closeRooms(homeserver.session(t));
    assert.equal(homeserver.made.length, 1);
  });

  it("a room of the partner's that one of ours has upgraded is replaced, and so is the upgraded one [CON-1] [PLN-2]", async (t) => {
    const homeserver = new FakeHomeserver();
    const dave = "@dave:a.test";
    const levels: State = ["m.room.power_levels", "", { users: { [ALICE]: 100, [BOB]: 100 } }];
    const upgraded = { room_version: "10", predecessor: { room_id: "!old" } };
    const found = [
      homeserver.room("!new", madeBy(ALICE, upgraded), levels, ...joined(ALICE, BOB)),
      homeserver.room("!old", madeBy(ALICE, { room_version: "10" }), levels, ...joined(ALICE, dave, BOB)),
    ];
    const session = homeserver.session(t);
    assert.deepEqual((await closeRooms(session)).outOfReach, []);
    assert.deepEqual(
      homeserver.made.map((made) => made["creation_content"]),
      found.map((room_id) => ({ predecessor: { room_id } })),
    );
    assert.deepEqual(homeserver.content("!made-2" as RoomId, "m.room.member", dave), { membership: "join" });
    for (const room of found) {
      assert.deepEqual(homeserver.content(room, "m.room.member", ALICE), { membership: "leave" });
    }
  });

  it("a new room is made in place of one that is gone before everybody was in it [CON-1] [PLN-2]", async (t) => {
    const homeserver = new FakeHomeserver();
    const room = homeserver.room("!room", madeBy(BOB), ...joined(ALICE, BOB));
    const session = homeserver.session(t);
    const to = "!gone" as RoomId;
    const made = { act: "replacement", room, to, aliases: [], members: [ALICE], invited: [] } as const;
    const begun = { act: "replace", room, creator: ALICE, users: [] } as const;
    await session.journals.get("b.test")?.append(begun as never, made as never);
    assert.deepEqual((await closeRooms(session)).outOfReach, []);
    assert.equal(homeserver.made.length, 1);
    assert.equal(session.journals.get("b.test")?.room(room)?.replacement?.to, "!made-1");
  });

  it("one of ours who may do nothing is invited into the new room and named, and keeps nobody in the old one [CON-1] [PLN-2]", async (t) => {
    const homeserver = new FakeHomeserver();
    const dave = "@dave:a.test";
    const room = homeserver.room("!room", madeBy(BOB), ...joined(ALICE, dave, BOB));
    const session = homeserver.session(t);
    homeserver.locked.add(dave);
    const found = async () => (await closeRooms(session)).outOfReach?.map(({ reason }) => reason);
    assert.deepEqual(await found(), ["left_out"]);
    assert.deepEqual(homeserver.content(room, "m.room.member", ALICE), { membership: "leave" });
    assert.deepEqual(homeserver.content("!made-1" as RoomId, "m.room.member", dave), {
      membership: "invite",
    });
    assert.deepEqual(await found(), []);
  });

  it("one of ours who is not even invited into the new room keeps the old one [CON-1] [PLN-2]", async (t) => {
    const homeserver = new FakeHomeserver();
    const dave = "@dave:a.test";
    const room = homeserver.room("!room", madeBy(BOB), ...joined(ALICE, dave, BOB));
    const session = homeserver.session(t);
    session.tokens.as = async (user) => {
      const nothing = async () => "refused";
      return { ...homeserver.acting(user), invite: nothing, join: async () => false } as never;
    };
    const { outOfReach } = await closeRooms(session);
    assert.deepEqual(
      outOfReach?.map(({ reason }) => reason),
      ["not_replaced"],
    );
    assert.deepEqual(homeserver.content(room, "m.room.member", ALICE), { membership: "join" });
  });

  it("another of ours makes the new room where who was to make it may do nothing any more [CON-1] [PLN-2]", async (t) => {
    const homeserver = new FakeHomeserver();
    const room = homeserver.room("!room", madeBy(BOB), ...joined(ALICE, "@dave:a.test", BOB));
    const session = homeserver.session(t);
    const begun = { act: "replace", room, creator: ALICE, users: [] } as const;
    await session.journals.get("b.test")?.append(begun as never);
    homeserver.locked.add(ALICE);
    await closeRooms(session);
    assert.deepEqual(homeserver.content(room, "m.room.member", ALICE), { membership: "leave" });
  });

  it("a room that cannot be retired is named, and keeps no other from being retired [CON-1] [PLN-2]", async (t) => {
    const homeserver = new FakeHomeserver();
    const stuck = homeserver.room("!0-stuck", madeBy(ALICE), ...joined(ALICE, BOB));
    const room = homeserver.room("!room", madeBy(ALICE), ...joined(ALICE, BOB));
    const session = homeserver.session(t);
    const [closing] = session.intent.closing;
    Object.assign(closing ?? {}, { after: "retire" });
    const { deleteRoom } = session.operator;
    session.operator.deleteRoom = async (one, purge) => {
      if (one === stuck) throw refused();
      return deleteRoom(one, purge);
    };
    const { outOfReach } = await closeRooms(session);
    assert.deepEqual(homeserver.content(room, "m.room.member", ALICE), { membership: "leave" });
    assert.deepEqual(
      outOfReach?.map(({ subject, reason }) => [subject, reason]),
      [[stuck, "not_deleted"]],
    );
  });

  it("a restore unblocks a room whose retirement was cut off, and opens again one that was not blocked yet [CON-1] [PLN-2]", async (t) => {
    for (const isBlocked of [true, false]) {
      const homeserver = new FakeHomeserver();
      const room = homeserver.room("!room", madeBy(ALICE), ...joined(ALICE, BOB));
      const session = homeserver.session(t);
      Object.assign(session.intent.closing[0] ?? {}, { after: "retire" });
      const { deleteRoom } = session.operator;
      session.operator.deleteRoom = async (one, purge) => {
        if (isBlocked) await deleteRoom(one, purge);
        throw new Error("killed");
      };
      await assert.rejects(closeRooms(session), /killed/);
      const unblocked: RoomId[] = [];
      session.operator.unblock = async (one) => void unblocked.push(one);
      admit(session);
      await reopenRooms(session);
      assert.deepEqual(unblocked, isBlocked ? [room] : []);
      const bob = homeserver.content(room, "m.room.member", BOB)?.["membership"];
      assert.equal(bob === "ban", isBlocked, "what does not come back stays closed");
    }
  });

  it("a retired room stays blocked while another partner needs that, and for good after a removal [CON-1] [PLN-2]", async (t) => {
    const homeserver = new FakeHomeserver();
    const room = homeserver.room("!room", madeBy(ALICE), ...joined(ALICE, BOB, "@dan:d.test"));
    const session = homeserver.session(t, ["b.test", "d.test"]);
    for (const one of session.intent.closing) Object.assign(one, { after: "retire" });
    await closeRooms(session);
    session.operator.unblock = () => assert.fail("it is unblocked");
    await session.journals.get("d.test")?.append({ act: "removed", room });
    for (const partner of ["b.test", "d.test"]) {
      admit(session, partner);
      await reopenRooms(session);
      assert.equal(session.journals.get(partner)?.room(room), undefined, "it does not come back");
    }
  });

  it("a room is replaced although another server does not answer the invitations of its users [CON-1] [PLN-2]", async (t) => {
    const homeserver = new FakeHomeserver();
    const others = [CAROL, "@cecil:c.test", "@chris:c.test", "@clara:c.test", "@cyril:c.test", "@dan:d.test"];
    const room = homeserver.room("!room", madeBy(BOB), ...joined(ALICE, "@adam:a.test", BOB, ...others));
    const session = homeserver.session(t);
    session.intent.retained.push("d.test");
    let asked = 0;
    homeserver.onChange = (type, key) => {
      if (type !== "m.room.member" || !key.endsWith(":c.test")) return;
      asked += 1;
      throw unavailable();
    };
    const found = async () =>
      (await closeRooms(session)).outOfReach?.map(({ subject, reason }) => [subject, reason]);
    assert.deepEqual(await found(), [[room, "left_out"]]);
    assert.ok(asked > 0 && asked < 5, "who is behind the first of a silent server is not waited for");
    const made = "!made-1" as RoomId;
    assert.deepEqual(homeserver.content(room, "m.room.member", ALICE), { membership: "leave" });
    assert.deepEqual(homeserver.content(made, "m.room.member", "@adam:a.test"), { membership: "join" });
    assert.deepEqual(homeserver.content(made, "m.room.member", "@dan:d.test"), { membership: "invite" });
    assert.deepEqual(await found(), []);
  });

  it("a room that was to be replaced, and has no replacement yet, is opened again by a restore [CON-1] [PLN-2]", async (t) => {
    const homeserver = new FakeHomeserver();
    const ann = "@ann:b.test";
    const room = homeserver.room(
      ...(["!room", madeBy(BOB, { room_version: "10" }), ...joined(ALICE, BOB, ann)] as const),
      ["m.room.power_levels", "", { users: { [BOB]: 100, [ALICE]: 50 } }],
    );
    const session = homeserver.session(t);
    homeserver.onChange = (type) => {
      if (type === "m.room.create") throw refused();
    };
    const { outOfReach } = await closeRooms(session);
    assert.deepEqual(
      outOfReach?.map(({ reason }) => reason),
      ["not_replaced"],
    );
    assert.deepEqual(homeserver.content(room, "m.room.member", ann), { membership: "ban" });
    session.intent.closing.length = 0;
    session.intent.retained.push("b.test");
    await reopenRooms(session);
    assert.deepEqual(homeserver.content(room, "m.room.member", ann), { membership: "invite" });
    assert.ok(!deniedByEnforcement(homeserver.content(room, "m.room.server_acl") ?? {}, "b.test"));
  });

  for (const isKilled of [false, true]) {
    const kill = isKilled ? ", and is cut off after a ban" : "";
    it(`who came back by a restore that had not ended comes back after another containment${kill} [CON-1] [PLN-2]`, async (t) => {
      const homeserver = new FakeHomeserver();
      const ann = "@ann:b.test";
      const room = homeserver.room("!room", madeBy(ALICE), ...joined(ALICE, ann, BOB));
      const session = homeserver.session(t);
      const closing = [...session.intent.closing];
      let isLimited = true;
      session.tokens.as = async (user) => {
        const acting = homeserver.acting(user);
        const invite = async (to: RoomId, who: string) =>
          isLimited && who === BOB ? "limited" : acting.invite(to, who);
        return { ...acting, invite } as never;
      };
      const restore = async () => {
        session.intent.closing.length = 0;
        session.intent.allow.push("b.test");
        session.intent.retained.push("b.test");
        await closeRooms(session);
        const { outOfReach } = await reopenRooms(session);
        return outOfReach?.map(({ reason }) => reason);
      };
      await closeRooms(session);
      assert.deepEqual(await restore(), ["being_invited"]);
      homeserver.room(room, ...joined(ann));
      session.intent.closing.push(...closing);
      session.intent.allow.pop();
      session.intent.retained.pop();
      const journal = session.journals.get("b.test");
      assert.ok(journal !== undefined);
      const { append } = journal;
      if (isKilled) journal.append = (...all) => append(...all.filter(({ act }) => act !== "banned"));
      await closeRooms(session);
      assert.deepEqual(homeserver.content(room, "m.room.member", ann), { membership: "ban" });
      journal.append = append;
      isLimited = false;
      assert.deepEqual(await restore(), []);
      for (const user of [ann, BOB]) {
        assert.deepEqual(homeserver.content(room, "m.room.member", user), { membership: "invite" }, user);
      }
    });
  }

  it("a ban that a moderator makes after ours was lifted stays, although ours was cut off before its event was known [CON-1] [PLN-2]", async (t) => {
    const homeserver = new FakeHomeserver();
    const room = homeserver.room("!room", madeBy(ALICE), ...joined(ALICE, BOB, CAROL));
    const session = homeserver.session(t);
    const journal = session.journals.get("b.test");
    assert.ok(journal !== undefined);
    const { append } = journal;
    journal.append = (...all) => append(...all.filter(({ act }) => act !== "banned"));
    await closeRooms(session);
    journal.append = append;
    admit(session);
    session.tokens.as = async (user) =>
      ({ ...homeserver.acting(user), invite: async () => "limited" }) as never;
    await reopenRooms(session);
    assert.deepEqual(homeserver.content(room, "m.room.member", BOB), { membership: "leave" });
    homeserver.room(room, ["m.room.member", BOB, { membership: "ban" }, ALICE]);
    await reopenRooms(session);
    assert.deepEqual(homeserver.content(room, "m.room.member", BOB), { membership: "ban" });
  });

  it("a room that was made read-only twice, by more power the second time, is writable after a restore [CON-1] [PLN-2]", async (t) => {
    const homeserver = new FakeHomeserver();
    const levels = (alice: number, more: Content = {}): State => [
      ...(["m.room.power_levels", "", { ...more, users: { [ALICE]: alice, [CAROL]: 100 } }, CAROL] as const),
    ];
    const room = homeserver.room(
      ...(["!room", madeBy(CAROL, { room_version: "10" }), ...joined(ALICE, BOB, CAROL)] as const),
      levels(50, { events_default: 0, events: { "m.room.topic": 10 } }),
    );
    const session = homeserver.session(t);
    Object.assign(session.intent.closing[0] ?? {}, { after: "read_only" });
    await closeRooms(session);
    const content = () => homeserver.content(room, "m.room.power_levels") ?? {};
    assert.equal(content()["events_default"], 50);
    homeserver.room(room, levels(100, content()));
    await closeRooms(session);
    session.intent.closing.length = 0;
    session.intent.allow.push("b.test");
    session.intent.retained.push("b.test");
    await reopenRooms(session);
    assert.deepEqual([content()["events_default"], content()["events"]], [0, { "m.room.topic": 10 }]);
  });

  it("a restore leaves the levels of a room as another partner's containment needs them [CON-1] [PLN-2]", async (t) => {
    const homeserver = new FakeHomeserver();
    const before: Content = { users: { [ALICE]: 100 }, invite: 0, events_default: 0 };
    const room = homeserver.room(
      ...(["!room", madeBy(ALICE, { room_version: "10" })] as const),
      ...joined(ALICE, BOB, CAROL, "@dan:d.test"),
      ["m.room.power_levels", "", before],
    );
    const session = homeserver.session(t, ["b.test", "d.test"]);
    for (const one of session.intent.closing) Object.assign(one, { after: "read_only" });
    await closeRooms(session);
    const content = () => homeserver.content(room, "m.room.power_levels") ?? {};
    const closed = content();
    assert.notDeepEqual([closed["invite"], closed["events_default"]], [0, 0]);
    const restore = async (partner: string) => {
      admit(session, partner);
      session.intent.allow.sort();
      await closeRooms(session);
      assert.deepEqual((await reopenRooms(session)).outOfReach, []);
    };
    await restore("b.test");
    assert.deepEqual(content(), closed);
    await restore("d.test");
    assert.deepEqual([content()["invite"], content()["events_default"]], [0, 0]);
  });
});
