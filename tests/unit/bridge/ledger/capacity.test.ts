import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type {
  Capacity,
  NewDelegation,
  NewIntakeEnvelope,
} from "../../../../src/bridge/ledger/admission-types.ts";
import {
  indexKey,
  type KnownIndices,
  type KnownPlaces,
  type OpenCounts,
  type Placed,
  place,
  queueShare,
  roomTotals,
} from "../../../../src/bridge/ledger/capacity.ts";
import { sha256 } from "../../../../src/domain/digest.ts";
import type { AgentId, UserId } from "../../../../src/domain/identifiers.ts";
import { envelope, event, ghost, job, room } from "../../../support/ledger.ts";

const NOTHING: KnownPlaces = { rooms: [] };
const WIDE = { roomQueue: 1_000, globalQueue: 1_000 };
type Arrived = readonly (NewDelegation | NewIntakeEnvelope)[];

const isJob = (one: NewDelegation | NewIntakeEnvelope): one is NewDelegation => "ghost" in one;
const arrived = (all: Arrived) => ({
  delegations: all.filter(isJob),
  envelopes: all.filter((one): one is NewIntakeEnvelope => !isJob(one)),
});
/** What is open: `total` in all, of which the rooms have what is known of them. */
const open = (known = NOTHING, total = 0, shares: OpenCounts = new Map()): OpenCounts => {
  const rooms = (known.rooms ?? []).map(([where, , count]) => [queueShare(where), count] as const);
  return new Map([["", total], ...rooms, ...shares]);
};
const placed = (all: Arrived, known = NOTHING, counts = open(known), capacity: Capacity = WIDE) =>
  place(arrived(all), known, new Map(), counts, capacity);

/** The delegations of an intake envelope of room `r` that has the place 7. */
const placedAt7 = (
  jobs: readonly NewDelegation[],
  used: KnownIndices,
  counts: OpenCounts,
  capacity: Capacity,
) =>
  place({ delegations: jobs, envelopes: [] }, { rooms: [[room("r"), true, 0, 7]] }, used, counts, capacity)
    .jobs;

/** Event, place and reason of each, in the order of the places. */
function summary({ jobs, envelopes }: Placed) {
  return [
    ...jobs.map(({ event: name, seq, ordinal, denied }) => [name, seq, ordinal, denied]),
    ...envelopes.map(({ event: name, seq, denied }) => [name, seq, "envelope", denied]),
  ];
}

describe("placement", () => {
  it("gives places in the order of the events [ENC-3]", () => {
    const result = placed([
      job("q3", { position: 3, ghost: ghost("a") }),
      job("q1", { position: 1 }),
      job("q3", { position: 3, ghost: ghost("b") }),
      envelope("e0", { position: 0 }),
      envelope("e2", { position: 2 }),
      envelope("e4", { position: 4, room: room("s") }),
    ]);
    assert.deepEqual(summary(result), [
      [event("q1"), 2, 0, null],
      [event("q3"), 4, 0, null],
      [event("q3"), 4, 1, null],
      [event("e0"), 1, "envelope", null],
      [event("e2"), 3, "envelope", null],
      [event("e4"), 1, "envelope", null],
    ]);
    assert.deepEqual(roomTotals(result), [
      { room: room("r"), places: 4, slots: 3, gate: 1 },
      { room: room("s"), places: 1, slots: 0, gate: 1 },
    ]);
  });

  it("limits intake envelopes by their room and by their sender, and takes no slot of delegations for them [ENC-4]", () => {
    const known: KnownPlaces = { ...NOTHING, rooms: [[room("r"), true, 2, 10]] };
    const bob = "@bob:b.test" as UserId;
    const events = [
      envelope("e0", { position: 0 }),
      envelope("e1", { position: 1 }),
      envelope("e2", { position: 2, sender: bob }),
      envelope("e3", { position: 3, sender: bob }),
      job("q4", { position: 4 }),
    ];
    const capacity = { roomQueue: 3, globalQueue: 3, roomEnvelopes: 5, senderEnvelopes: 2 };
    const shares = new Map([
      ["room !r", 3],
      ["sender @alice:a.test", 1],
    ]);
    const result = placed(events, known, open(known, 2, shares), capacity);
    assert.deepEqual(summary(result), [
      [event("q4"), 12, 0, null],
      [event("e0"), 10, "envelope", null],
      [event("e1"), null, "envelope", "sender_envelopes_exceeded"],
      [event("e2"), 11, "envelope", null],
      [event("e3"), null, "envelope", "room_envelopes_exceeded"],
    ]);
    assert.deepEqual(roomTotals(result), [{ room: room("r"), places: 3, slots: 1, gate: 1 }]);
  });

  it("limits the intake envelopes of a server's users and of all, and refuses one server nothing for another's [ENC-4]", () => {
    const sender = (name: string) => ({ sender: `@${name}` as UserId });
    const events = [
      envelope("e0", { position: 0, ...sender("alice:a.test") }),
      envelope("e1", { position: 1, ...sender("anna:a.test") }),
      envelope("e2", { position: 2, ...sender("bob:b.test") }),
      envelope("e3", { position: 3, ...sender("carol:c.test") }),
    ];
    const capacity = { ...WIDE, serverEnvelopes: 3, globalEnvelopes: 5 };
    const shares = new Map([
      ["awaiting a.test", 2],
      ["awaiting", 3],
    ]);
    const { envelopes } = placed(events, NOTHING, open(NOTHING, 0, shares), capacity);
    assert.deepEqual(
      envelopes.map(({ denied }) => denied),
      [null, "server_envelopes_exceeded", null, "global_envelopes_exceeded"],
    );
  });

  it("divides capacity by room, agent and sender's server, and refuses nothing of the others [INT-4]", () => {
    const bob = "@bob:b.test" as UserId;
    const math = { agent: "math" as AgentId, ghost: ghost("math") };
    const jobs = [
      job("q1", { position: 1, room: room("r1") }),
      job("q2", { position: 2, room: room("r2") }),
      job("q3", { position: 3, room: room("r3"), ...math }),
      job("q4", { position: 4, room: room("r4"), ...math, sender: bob }),
      job("q5", { position: 5, room: room("r5"), ...math, sender: bob }),
    ];
    const shares = new Map([
      ["agent docs", 1],
      ["server a.test", 1],
    ]);
    const capacity = { roomQueue: 9, globalQueue: 5, agentQueue: 2, serverQueue: 2 };
    const { jobs: result } = placed(jobs, NOTHING, open(NOTHING, 3, shares), capacity);
    assert.deepEqual(
      result.map(({ denied }) => denied),
      [null, "agent_capacity_exceeded", "server_capacity_exceeded", null, "global_capacity_exceeded"],
    );
  });

  it("keeps a reserve for each agent, of each server, where others fill the server's share and the deployment [INT-4]", () => {
    const bob = "@bob:b.test" as UserId;
    const jobs = [
      job("q1", { position: 1, room: room("r1") }),
      job("q2", { position: 2, room: room("r2") }),
      job("q3", { position: 3, room: room("r3"), sender: bob }),
      job("q4", { position: 4, room: room("r4"), agent: "math" as AgentId, ghost: ghost("math") }),
      job("q5", { position: 5, room: room("r5"), agent: "stuck" as AgentId, ghost: ghost("stuck") }),
    ];
    const stuck = 40;
    const shares = new Map([
      ["agent stuck", stuck],
      ["server a.test", stuck],
      ["pair a.test stuck", stuck],
    ]);
    const deniedBy = (capacity: Omit<Capacity, "roomQueue">) =>
      placed(jobs, NOTHING, open(NOTHING, stuck, shares), { roomQueue: 9, ...capacity }).jobs.map(
        ({ denied }) => denied,
      );
    assert.deepEqual(deniedBy({ globalQueue: 100, serverQueue: stuck, agentReserve: 1 }), [
      ...[null, "server_capacity_exceeded", null, null, "server_capacity_exceeded"],
    ]);
    assert.deepEqual(deniedBy({ globalQueue: stuck, agentReserve: 2 }), [
      ...[null, null, "global_capacity_exceeded", null, "global_capacity_exceeded"],
    ]);
    const twice = stuck / 2;
    assert.deepEqual(deniedBy({ globalQueue: 100, serverQueue: twice, agentReserve: 9 }).slice(0, 3), [
      ...["server_capacity_exceeded", "server_capacity_exceeded", null],
    ]);
    assert.equal(deniedBy({ globalQueue: twice, agentReserve: 9 })[0], "global_capacity_exceeded");
    assert.deepEqual(deniedBy({ globalQueue: 100, agentQueue: 1, agentReserve: 2 }).slice(0, 2), [
      null,
      "agent_capacity_exceeded",
    ]);
  });

  it("refuses what is refused already, without taking a slot or a place [DEL-2]", () => {
    const refused = job("q1", { position: 1, refused: "sender_policy_rejected" });
    const result = placed([refused, job("q2", { position: 2 })], NOTHING, open(), {
      roomQueue: 1,
      globalQueue: 1,
    });
    assert.deepEqual(summary(result), [
      [event("q1"), null, null, "sender_policy_rejected"],
      [event("q2"), 1, 0, null],
    ]);
  });

  it("refuses all but the first event of a message index [ENC-9]", () => {
    const indexDigest = sha256("index");
    const jobs = [
      job("q1", { indexDigest, ghost: ghost("a") }),
      job("q1", { indexDigest, ghost: ghost("b") }),
      job("q2", { indexDigest, position: 1 }),
    ];
    const first = new Map([[indexKey(indexDigest), event("q1")]]);
    const at = place(arrived(jobs), NOTHING, first, open(), WIDE);
    assert.deepEqual(summary(at).slice(2), [[event("q2"), null, null, "event_replayed"]]);
    const used = new Map([[indexKey(indexDigest), event("q2")]]);
    const later = place(arrived(jobs), NOTHING, used, open(), WIDE);
    assert.deepEqual(
      later.jobs.map(({ denied }) => denied),
      ["event_replayed", "event_replayed", null],
    );
    assert.deepEqual(
      placedAt7(jobs.slice(0, 2), used, open(), WIDE).map(({ seq, denied }) => [seq, denied]),
      [
        [null, "event_replayed"],
        [null, "event_replayed"],
      ],
    );
  });

  it("gives the delegations of an intake envelope its place, as far as there are slots [ENC-5]", () => {
    const known: KnownPlaces = { ...NOTHING, rooms: [[room("r"), true, 4, 10]] };
    const jobs = ["a", "b", "c"].map((who) => job("e", { ghost: ghost(who) }));
    const at = (total: number, capacity: Capacity) =>
      placedAt7(jobs, new Map(), open(known, total), capacity).map(({ seq, ordinal, siblings, denied }) =>
        denied === null ? [seq, ordinal, siblings] : denied,
      );
    assert.deepEqual(at(4, { roomQueue: 6, globalQueue: 9 }), [
      [7, 0, 2],
      [7, 1, 2],
      "room_capacity_exceeded",
    ]);
    assert.deepEqual(at(8, { roomQueue: 9, globalQueue: 9 }), [
      [7, 0, 1],
      "global_capacity_exceeded",
      "global_capacity_exceeded",
    ]);
  });

  it("leaves no gaps, never exceeds capacity, and sets the gate to the first intake envelope [ENC-4]", () => {
    const one = fc.record({
      name: fc.nat(9),
      where: fc.nat(1),
      ghosts: fc.nat(2),
    });
    fc.assert(
      fc.property(fc.array(one, { maxLength: 12 }), fc.nat(6), fc.nat(8), (events, perRoom, inAll) => {
        const all = events.flatMap(({ name, where, ghosts }, position): Arrived => {
          const at = { position, room: room(`r${where}`) };
          if (ghosts === 0) return [envelope(`${where}-${name}`, at)];
          return Array.from({ length: ghosts }, (_, g) =>
            job(`${where}-${name}`, { ...at, ghost: ghost(`g${g}`) }),
          );
        });
        const known: KnownPlaces = { ...NOTHING, rooms: [[room("r0"), false, 1, 5]] };
        const result = placed(all, known, open(known, 1), { roomQueue: perRoom, globalQueue: inAll });
        const totals = roomTotals(result);
        const slots = totals.reduce((sum, total) => sum + total.slots, 0);
        assert.ok(slots <= Math.max(0, inAll - 1));
        for (const { room: where, places, slots: here, gate } of totals) {
          const first = where === room("r0") ? 5 : 1;
          assert.ok(here <= Math.max(0, perRoom - (first === 5 ? 1 : 0)));
          const jobs = result.jobs.filter(({ room: its }) => its === where);
          const envelopes = result.envelopes.filter(({ room: its }) => its === where);
          const taken = new Set([...jobs, ...envelopes].flatMap(({ seq }) => seq ?? []));
          assert.deepEqual(
            [...taken].sort((a, b) => a - b),
            Array.from({ length: places }, (_, n) => first + n),
          );
          const gates = envelopes.flatMap(({ seq }) => seq ?? []);
          assert.equal(gate, gates.length === 0 ? null : 1 + Math.min(...gates) - first);
          for (const { seq, siblings } of jobs) {
            if (seq !== null) assert.equal(siblings, jobs.filter((other) => other.seq === seq).length);
          }
        }
      }),
    );
  });
});
