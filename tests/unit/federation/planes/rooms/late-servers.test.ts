import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { EventId, RoomId, UserId } from "../../../../../src/domain/identifiers.ts";
import {
  aclAllow,
  isSameAcl,
  reordered,
  type ServerAcl,
} from "../../../../../src/federation/planes/rooms/acl.ts";
import { joinedAfterAcl, planRoom } from "../../../../../src/federation/planes/rooms/plan-room-steps.ts";
import type { RoomsIntent } from "../../../../../src/federation/planes/rooms/render.ts";
import { readRoomState } from "../../../../../src/federation/planes/rooms/room-state.ts";
import type { RoomsSession } from "../../../../../src/federation/planes/rooms/session.ts";
import { ManualClock } from "../../../../support/manual-clock.ts";

const OWN = "a.test:1";
const PARTNER = "b.test:2";
const RETAINED = "d.test:4";
const ACL_AT = 1_000;
const NOW = 5_000;
const INTENT: RoomsIntent = {
  version: 1,
  own: OWN,
  allow: aclAllow([OWN, RETAINED]),
  retained: [RETAINED],
  ghosts: [],
  closing: [{ serverName: PARTNER, name: "org-b", mode: "contained", after: "keep", unclosable: "replace" }],
};
const OPERATOR = `@operator:${OWN}` as UserId;

interface Joined {
  readonly user: string;
  readonly at: number;
  readonly membership?: string;
}

function room(joined: readonly Joined[], allow: readonly string[] = INTENT.allow) {
  const event = (type: string, state_key: string, at: number, content: Record<string, unknown>) => ({
    ...{ type, state_key, sender: OPERATOR, event_id: `$${type}${state_key}`, origin_server_ts: at, content },
  });
  return readRoomState("!room:a.test" as RoomId, [
    event("m.room.create", "", 0, { room_version: "10" }),
    event("m.room.power_levels", "", 0, { users: { [OPERATOR]: 100 }, invite: 50 }),
    event("m.room.join_rules", "", 0, { join_rule: "invite" }),
    event("m.room.server_acl", "", ACL_AT, {
      ...{ allow, deny: [], allow_ip_literals: false },
    }),
    event("m.room.member", OPERATOR, 0, { membership: "join" }),
    ...joined.map(({ user, at, membership = "join" }) => event("m.room.member", user, at, { membership })),
  ]);
}

const plan = (joined: readonly Joined[], now = NOW, intent = INTENT, allow = INTENT.allow) =>
  planRoom(
    {
      ...{ intent, operatorId: OPERATOR, journals: new Map(), tokens: { unusable: new Set<UserId>() } },
      clock: new ManualClock(now),
    } as unknown as RoomsSession,
    room(joined, allow),
  ).steps;

describe("servers that joined after an ACL", () => {
  it("a server that joined after the ACL is sent it once more, as another event with the same meaning [PLN-2]", () => {
    const steps = plan([{ user: `@dora:${RETAINED}`, at: 2_000 }]);
    assert.deepEqual(
      steps.map(({ kind }) => kind),
      ["set_acl"],
    );
    const [step] = steps;
    assert.ok(step?.kind === "set_acl");
    assert.ok(isSameAcl(step.content, { allow: INTENT.allow, deny: [], allow_ip_literals: false }));
    assert.notDeepEqual(step.content.allow, INTENT.allow);
    // The next newcomer is sent yet another order: of content that the room has already no event is made.
    const sent = [...step.content.allow];
    const [next] = plan([{ user: `@dora:${RETAINED}`, at: 2_000 }], NOW, INTENT, sent);
    assert.ok(next?.kind === "set_acl");
    assert.notDeepEqual(next.content.allow, sent);
  });

  it("an ACL is not sent again for a server that was there before it, is only invited, or has a clock ahead of ours [PLN-2]", () => {
    assert.deepEqual(plan([{ user: `@dora:${RETAINED}`, at: 500 }]), []);
    // One of its users has changed a display name; another was there all along.
    assert.deepEqual(
      plan([
        { user: `@dora:${RETAINED}`, at: 2_000 },
        { user: `@dan:${RETAINED}`, at: 500 },
      ]),
      [],
    );
    assert.deepEqual(plan([{ user: `@dora:${RETAINED}`, at: 2_000, membership: "invite" }]), []);
    assert.deepEqual(plan([{ user: `@dora:${RETAINED}`, at: NOW + 1 }]), []);
    assert.deepEqual(plan([{ user: `@anna:${OWN}`, at: 2_000 }]), []);
    const { closing: _, ...others } = INTENT;
    assert.deepEqual(plan([{ user: `@dora:${RETAINED}`, at: 2_000 }], NOW, { ...others, closing: [] }), []);
  });

  it("an ACL that was sent again is newer than every join, so it is not sent a third time [PLN-2]", () => {
    fc.assert(
      fc.property(fc.array(fc.nat({ max: 2 * NOW }), { maxLength: 6 }), (times) => {
        const state = room(times.map((at, index) => ({ user: `@u${index}:${RETAINED}`, at })));
        const { acl } = state;
        assert.ok(acl !== undefined);
        const resent = { ...state, acl: { ...acl, eventId: "$again" as EventId, at: NOW } };
        assert.deepEqual(joinedAfterAcl(resent, INTENT, NOW), []);
      }),
    );
  });

  it("reordered keeps the meaning, or returns nothing [PLN-2]", () => {
    const names = fc.uniqueArray(fc.constantFrom("a.test", "a.test:1", "d.test", "*"), { maxLength: 4 });
    fc.assert(
      fc.property(names, names, fc.boolean(), (allow, deny, allow_ip_literals) => {
        const acl: ServerAcl = { allow, deny, allow_ip_literals };
        const other = reordered(acl);
        if (other === undefined) return assert.ok(allow.length < 2 && deny.length < 2);
        assert.ok(isSameAcl(other, acl));
        assert.notDeepEqual(other, acl);
      }),
    );
  });
});
