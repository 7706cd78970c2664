// Joins and history, by scripted people: what a real homeserver does with them is measured by the lab's tests.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { RoomId } from "../../../../src/domain/identifiers.ts";
import { probeRoom } from "../../../../src/federation/probes/from-outside.ts";
import { probedRoom, type RoomPeople } from "../../../../src/federation/probes/probed-room.ts";
import type { ProbeSources } from "../../../../src/federation/probes/user.ts";
import { ManualClock, settled } from "../../../support/manual-clock.ts";

const ROOM = "!room" as RoomId;
const GIVEN = { verdict: "open", layer: "homeserver", status: 200, reason: "given" } as const;
const REFUSED = { verdict: "closed", layer: "room_membership", status: 403, reason: "no_member" } as const;

/** Somebody of the partner's who is let in; a server gives history to those who are in, at the moment they ask. */
function room({ leaves }: { readonly leaves: () => number }) {
  let isIn = false;
  const said: string[] = [];
  const ask = async (_: string, server: string) => {
    said.push(`history at ${server}`);
    return isIn ? GIVEN : REFUSED;
  };
  const joined = async () => ["@bea:b.test"];
  const people = {
    partnerName: "b.test",
    targetName: "a.test",
    server: { makeJoin: async () => GIVEN, history: ask },
    partner: undefined,
    other: {
      userId: "@bea:b.test",
      serverName: "b.test",
      join: async (_: RoomId, [server]: readonly string[]) => {
        isIn = true;
        said.push(`joins by ${server}`);
        return { status: 200 };
      },
      leave: async () => {
        const status = leaves();
        said.push(`leaves: ${status}`);
        isIn &&= status !== 200;
        return { status };
      },
    },
    observer: { isJoined: async () => true, joinedFrom: joined, send: async () => ({ eventId: "$fresh" }) },
    witness: { serverName: "d.test", isJoined: async () => true, joinedFrom: joined, sees: async () => true },
  };
  return { people: people as unknown as RoomPeople, said };
}

async function probe(people: RoomPeople) {
  const clock = new ManualClock(0);
  const probed = probedRoom(ROOM, people, { arrivalTimeoutMs: 1_000, transport: undefined }, {
    clock,
  } as unknown as ProbeSources);
  let isDone = false;
  const running = probeRoom(probed).finally(() => {
    isDone = true;
  });
  running.catch(() => undefined);
  for (await settled(); !isDone; await settled()) await clock.advance(50);
  return await running;
}

describe("probeRoom", () => {
  it("probeRoom asks for history while the user who joined is in the room, and then leaves [OFF-4]", async () => {
    const { people, said } = room({ leaves: () => 200 });
    const items = await probe(people);
    const history = items.filter(({ probe }) => /^(event|backfill)_/.test(probe));
    assert.deepEqual(
      history.map(({ probe, verdict }) => [probe, verdict]),
      [
        ["event_at_target", "open"],
        ["backfill_at_target", "open"],
        ["event_at_witness", "open"],
        ["backfill_at_witness", "open"],
      ],
    );
    const visit = (server: string) => [
      `joins by ${server}`,
      `history at ${server}`,
      `history at ${server}`,
      "leaves: 200",
    ];
    assert.deepEqual(said, [...visit("a.test"), ...visit("d.test")]);
  });

  it("probeRoom leaves again when the first attempt fails [OFF-4]", async () => {
    const answers = [502, 429, 200];
    const { people, said } = room({ leaves: () => answers.shift() ?? 200 });
    await probe(people);
    assert.deepEqual(
      said.filter((what) => what.startsWith("leaves")),
      ["leaves: 502", "leaves: 429", "leaves: 200", "leaves: 200"],
    );
  });

  it("probeRoom names a user whom the homeserver does not let leave, and makes the other probes [OFF-4]", async () => {
    for (const status of [503, 403]) {
      const { people } = room({ leaves: () => status });
      const items = await probe(people);
      const joins = items.filter(({ probe }) => probe.startsWith("remote_join"));
      const stays = ["open", "cannot_leave", ["@bea:b.test"]];
      assert.deepEqual(
        joins.map(({ verdict, reason, references }) => [verdict, reason, references]),
        [stays, stays],
        `${status}`,
      );
      const others = items.filter(({ probe }) => /^(make_join|event_|backfill_)/.test(probe));
      assert.deepEqual(new Set(others.map(({ verdict }) => verdict)), new Set(["open"]));
      assert.equal(others.length, 6);
    }
  });
});
