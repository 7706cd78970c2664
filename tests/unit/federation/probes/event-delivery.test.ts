import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { RoomId } from "../../../../src/domain/identifiers.ts";
import {
  crossRoom,
  type Explanation,
  probedRoom,
  type RoomPeople,
} from "../../../../src/federation/probes/probed-room.ts";
import type { ProbeSources } from "../../../../src/federation/probes/user.ts";
import { ManualClock, settled } from "../../../support/manual-clock.ts";

const ROOM = "!room" as RoomId;
const TIMEOUT_MS = 1_000;
const DENIED: Explanation = { layer: "transport", reason: "federation_denied" };

/** Two people and a witness between whom nothing arrives; `writes` are when the witness wrote, in milliseconds. */
function people(clock: ManualClock, partnersLeft: readonly string[]) {
  const writes: number[] = [];
  const sends = (eventId: string) => async () => ({ answer: { status: 200 }, eventId });
  const joinedFrom = async () => partnersLeft;
  const isJoined = async () => true;
  const isShutOut = async () => false;
  const witness = {
    isJoined,
    joinedFrom,
    sees: async () => true,
    send: async () => {
      writes.push(clock.now());
      return { answer: { status: 200 }, eventId: "$later" };
    },
  };
  const found = {
    partnerName: "b.test",
    targetName: "a.test",
    server: undefined,
    other: undefined,
    partner: {
      ...{ isJoined, isShutOut, isNoAdministrator: async () => true },
      ...{ send: sends("$inwards"), holds: async () => false },
    },
    observer: { isJoined, isShutOut, joinedFrom, send: sends("$outwards"), sees: async () => false },
    witness,
  };
  return { found: found as unknown as RoomPeople, writes };
}

async function cross(
  transport: Explanation | undefined,
  partnersLeft: readonly string[],
  change: (found: RoomPeople, clock: ManualClock) => RoomPeople = (found) => found,
) {
  const clock = new ManualClock(0);
  const { found: everybody, writes } = people(clock, partnersLeft);
  const found = change(everybody, clock);
  const options = { arrivalTimeoutMs: TIMEOUT_MS, transport };
  const room = probedRoom(ROOM, found, options, { clock } as unknown as ProbeSources);
  let isDone = false;
  const crossing = crossRoom(room).finally(() => {
    isDone = true;
  });
  for (await settled(); !isDone; await settled()) await clock.advance(50);
  return { items: (await crossing).items, writes, tookMs: clock.now() };
}

describe("crossRoom", () => {
  it("both directions, direct and relayed, are waited for at the same time [EVD-1]", async () => {
    const { items, writes, tookMs } = await cross(DENIED, []);
    assert.deepEqual(
      items.map(({ probe, verdict, reason }) => [probe, verdict, reason]),
      [
        ["message_to_target", "closed", "federation_denied"],
        ["message_to_target_via_witness", "unknown", "unexplained_absence"],
        ["message_to_partner", "closed", "no_member"],
        ["message_to_partner_via_witness", "closed", "no_member"],
      ],
    );
    assert.ok(tookMs < 1.5 * TIMEOUT_MS, `${tookMs} ms`);
    assert.ok(
      writes.every((at) => at < TIMEOUT_MS),
      String(writes),
    );
  });

  it("an event that the witness relayed is never taken for a direct one [OFF-4]", async () => {
    for (const transport of [DENIED, undefined]) {
      const { items } = await cross(transport, ["@bob:b.test"], (found) => {
        let hasWritten = false;
        const passedOn = async () => hasWritten;
        const send = async () => {
          hasWritten = true;
          return { answer: { status: 200 }, eventId: "$later" };
        };
        return {
          ...found,
          partner: { ...found.partner, holds: passedOn },
          observer: { ...found.observer, sees: passedOn },
          witness: { ...found.witness, send },
        } as unknown as RoomPeople;
      });
      // Where nothing explains that it did not, it may have come directly, and late.
      const direct = transport === undefined ? ["unknown", "arrived_late"] : ["closed", transport.reason];
      assert.deepEqual(
        items.map(({ probe, verdict, reason }) => [probe, verdict, reason]),
        [
          ["message_to_target", ...direct],
          ["message_to_target_via_witness", "open", "relayed"],
          ["message_to_partner", ...direct],
          ["message_to_partner_via_witness", "open", "relayed"],
        ],
      );
    }
  });

  it("the witness writes in no direction before the slowest has looked, and each looks once more then [OFF-4]", async () => {
    // Nothing explains that the target is shown nothing, so that its direction takes longer than the partner's.
    for (const arrivesAt of [Infinity, TIMEOUT_MS - 200]) {
      const { items } = await cross(undefined, [], (found, clock) => {
        let hasWritten = false;
        const send = async () => {
          hasWritten = true;
          return { answer: { status: 200 }, eventId: "$later" };
        };
        const sees = async () => {
          await clock.sleep(100);
          return hasWritten;
        };
        return {
          ...found,
          partner: { ...found.partner, holds: async () => hasWritten || clock.now() >= arrivesAt },
          observer: { ...found.observer, sees },
          witness: { ...found.witness, send },
        } as unknown as RoomPeople;
      });
      const outwards =
        arrivesAt === Infinity
          ? [
              ["message_to_partner", "closed", "no_member"],
              ["message_to_partner_via_witness", "open", "relayed"],
            ]
          : [["message_to_partner", "open", "arrived"]];
      assert.deepEqual(
        items.map(({ probe, verdict, reason }) => [probe, verdict, reason]),
        [
          ["message_to_target", "unknown", "arrived_late"],
          ["message_to_target_via_witness", "open", "relayed"],
          ...outwards,
        ],
      );
    }
  });

  it("an event that arrives directly counts as direct, although an explanation speaks against it [OFF-4]", async () => {
    const { items } = await cross(DENIED, ["@bob:b.test"], (found) => {
      const arrives = async () => true;
      return {
        ...found,
        partner: { ...found.partner, holds: arrives },
        observer: { ...found.observer, sees: arrives },
      } as unknown as RoomPeople;
    });
    assert.deepEqual(
      items.map(({ probe, verdict, reason }) => [probe, verdict, reason]),
      [
        ["message_to_target", "open", "arrived"],
        ["message_to_partner", "open", "arrived"],
      ],
    );
  });

  it("the witness writes only when every direction was waited for, while nothing explains an absence [EVD-1]", async () => {
    const { items, writes, tookMs } = await cross(undefined, ["@bob:b.test"]);
    assert.ok(items.every(({ verdict }) => verdict === "unknown"));
    assert.equal(writes.length, 2);
    assert.ok(
      writes.every((at) => at >= TIMEOUT_MS),
      String(writes),
    );
    assert.ok(tookMs >= 2 * TIMEOUT_MS && tookMs < 2.5 * TIMEOUT_MS, `${tookMs} ms`);
  });

  it("an event that arrives a moment after the witness has it counts as direct [OFF-4]", async () => {
    for (const later of ["$later", undefined]) {
      const { items } = await cross(DENIED, ["@bob:b.test"], (found, clock) => {
        const arrives = async () => clock.now() >= 200;
        return {
          ...found,
          partner: { ...found.partner, holds: arrives },
          observer: { ...found.observer, sees: arrives },
          witness: { ...found.witness, send: async () => ({ answer: { status: 200 }, eventId: later }) },
        } as unknown as RoomPeople;
      });
      assert.deepEqual(
        items.map(({ probe, verdict, reason }) => [probe, verdict, reason]),
        [
          ["message_to_target", "open", "arrived"],
          ["message_to_partner", "open", "arrived"],
        ],
      );
    }
  });

  it("an event that arrives late and before any witness writes counts as direct [OFF-4]", async () => {
    const { items, writes } = await cross(undefined, ["@bob:b.test"], (found, clock) => {
      const arrives = async () => clock.now() >= 1.5 * TIMEOUT_MS;
      return {
        ...found,
        partner: { ...found.partner, holds: arrives },
        observer: { ...found.observer, sees: arrives },
        witness: { ...found.witness, sees: arrives },
      } as unknown as RoomPeople;
    });
    assert.deepEqual(
      items.map(({ probe, verdict, reason }) => [probe, verdict, reason]),
      [
        ["message_to_target", "open", "arrived"],
        ["message_to_partner", "open", "arrived"],
      ],
    );
    assert.deepEqual(writes, []);
  });

  it("an event that never reached the witness is not closed, unless the witness's server refuses it [OFF-4]", async () => {
    const late = (found: RoomPeople, refusing: readonly string[]) =>
      ({
        ...found,
        partner: { ...found.partner, holds: async (_: RoomId, eventId: string) => eventId === "$later" },
        observer: { ...found.observer, sees: async (_: RoomId, eventId: string) => eventId === "$later" },
        witness: { ...found.witness, serverName: "d.test", sees: async () => false },
        server: {
          makeJoin: async (at: string) => ({
            verdict: refusing.includes(at) ? "closed" : "open",
            layer: "room_acl",
          }),
        },
      }) as unknown as RoomPeople;
    const said = async (...refusing: readonly string[]) => {
      const { items, writes } = await cross(undefined, ["@bob:b.test"], (found) => late(found, refusing));
      assert.deepEqual(writes, []);
      return items.map(({ probe, verdict, reason }) => [probe, verdict, reason]);
    };
    assert.deepEqual(await said(), [
      ["message_to_target", "unknown", "unexplained_absence"],
      ["message_to_target_via_witness", "unknown", "not_applicable:witness_lacks_event"],
      ["message_to_partner", "unknown", "unexplained_absence"],
      ["message_to_partner_via_witness", "unknown", "not_applicable:witness_lacks_event"],
    ]);
    assert.deepEqual((await said("a.test", "d.test")).slice(0, 2), [
      ["message_to_target", "closed", "server_banned"],
      ["message_to_target_via_witness", "closed", "server_banned"],
    ]);
  });

  it("a failed request says nothing of either way, and hides no event that arrived [EVD-1]", async () => {
    const down = async () => {
      throw new TypeError("fetch failed");
    };
    const { items } = await cross(undefined, ["@bob:b.test"], (found) => {
      const observer = { ...found.observer, sees: async () => true };
      return { ...found, observer, witness: { ...found.witness, isJoined: down } } as unknown as RoomPeople;
    });
    assert.deepEqual(
      items.map(({ probe, verdict, reason }) => [probe, verdict, reason]),
      [
        ["message_to_target", "open", "arrived"],
        ["message_to_partner", "unknown", "unreachable"],
        ["message_to_partner_via_witness", "unknown", "unreachable"],
      ],
    );
  });

  it("an event that nobody would be shown is not waited for when its absence is explained [EVD-1]", async () => {
    const yes = async () => true;
    const blind = (found: RoomPeople) =>
      ({
        ...found,
        partner: { ...found.partner, isShutOut: yes },
        observer: { ...found.observer, isShutOut: yes, isJoined: async () => false },
      }) as unknown as RoomPeople;
    const crossed = await cross(DENIED, []);
    const { items, tookMs, writes } = await cross(DENIED, [], blind);
    assert.ok(crossed.tookMs >= TIMEOUT_MS, `${crossed.tookMs} ms`);
    assert.ok(tookMs < TIMEOUT_MS / 2, `${tookMs} ms`);
    assert.deepEqual(writes, [], "nor written by the witness");
    assert.deepEqual(
      items.map(({ probe, verdict, reason }) => [probe, verdict, reason]),
      [
        ["message_to_target", "closed", "federation_denied"],
        ["message_to_target_via_witness", "closed", "target_has_left"],
        ["message_to_partner", "closed", "no_member"],
        ["message_to_partner_via_witness", "closed", "no_member"],
      ],
    );
  });

  const BUT_A_GHOST = ["@_agent:b.test"];

  /** The partner's person is out of the room, or only invited: its homeserver shows it nothing, and takes nothing of it. */
  function outside(found: RoomPeople): RoomPeople {
    const refuses = async () => ({
      answer: { status: 403, body: { errcode: "M_FORBIDDEN" } },
      eventId: undefined,
    });
    const partner = { ...found.partner, isJoined: async () => false, send: refuses };
    return { ...found, partner } as unknown as RoomPeople;
  }

  it("an absence says nothing when the partner's user is not in the room and its server is [EVD-1]", async () => {
    const { items } = await cross(undefined, BUT_A_GHOST, outside);
    assert.deepEqual(
      items.map(({ probe, verdict, reason }) => [probe, verdict, reason]),
      [
        ["message_to_target", "unknown", "not_applicable:user_is_no_member"],
        ["message_to_target_via_witness", "unknown", "not_applicable:user_is_no_member"],
        ["message_to_partner", "unknown", "not_applicable:user_is_no_member"],
        ["message_to_partner_via_witness", "unknown", "not_applicable:user_is_no_member"],
      ],
    );
    const cut = await cross(undefined, [], outside);
    assert.deepEqual(
      cut.items.at(-2)?.verdict,
      "closed",
      "where its server has nobody left, nothing can come",
    );
  });

  it("no finding is made at the witness when there is none [EVD-1]", async () => {
    const { items } = await cross(undefined, [], (found) => outside({ ...found, witness: undefined }));
    assert.deepEqual(
      items.filter(({ vantage }) => vantage === "witness").map(({ verdict, reason }) => [verdict, reason]),
      [
        ["unknown", "not_configured:witness"],
        ["unknown", "not_configured:witness"],
      ],
    );
  });
});
