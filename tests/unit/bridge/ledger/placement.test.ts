import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { NewDelegation, NewIntakeEnvelope } from "../../../../src/bridge/ledger/admission-types.ts";
import {
  indexKey,
  type KnownPlaces,
  type Placed,
  place,
  placeAt,
  roomTotals,
} from "../../../../src/bridge/ledger/placement.ts";
import { sha256 } from "../../../../src/domain/digest.ts";
import { envelope, event, ghost, job, room } from "../../../support/ledger.ts";

const NOTHING: KnownPlaces = { rooms: [] };
const WIDE = { room: 1_000, global: 1_000 };
type Arrived = readonly (NewDelegation | NewIntakeEnvelope)[];

const isJob = (one: NewDelegation | NewIntakeEnvelope): one is NewDelegation => "ghost" in one;
const arrived = (all: Arrived) => ({
  delegations: all.filter(isJob),
  envelopes: all.filter((one): one is NewIntakeEnvelope => !isJob(one)),
});
const placed = (all: Arrived, known = NOTHING, open = 0, capacity = WIDE) =>
  place(arrived(all), known, new Map(), open, capacity);

/** Event, place and reason of each, in the order of the places. */
function summary({ jobs, envelopes }: Placed) {
  return [
    ...jobs.map(({ job: { event: name }, seq, ordinal, denied }) => [name, seq, ordinal, denied]),
    ...envelopes.map(({ envelope: { event: name }, seq, denied }) => [name, seq, "envelope", denied]),
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
      { room: room("r"), places: 4, slots: 5, gate: 1 },
      { room: room("s"), places: 1, slots: 1, gate: 1 },
    ]);
  });

  it("counts intake envelopes against the capacity of the room and of the deployment [ENC-4]", () => {
    const known: KnownPlaces = { ...NOTHING, rooms: [[room("r"), true, 2, 10]] };
    const events = ["e0", "e1", "e2"].map((name, position) => envelope(name, { position }));
    const other = envelope("f", { position: 9, room: room("s") });
    assert.deepEqual(summary(placed(events, known, 2, { room: 4, global: 9 })), [
      [event("e0"), 10, "envelope", null],
      [event("e1"), 11, "envelope", null],
      [event("e2"), null, "envelope", "room_capacity_exceeded"],
    ]);
    const global = placed([...events.slice(0, 1), other], known, 8, { room: 4, global: 9 });
    assert.deepEqual(
      global.envelopes.map(({ denied }) => denied),
      [null, "global_capacity_exceeded"],
    );
    assert.deepEqual(roomTotals(global), [
      { room: room("r"), places: 1, slots: 1, gate: 1 },
      { room: room("s"), places: 0, slots: 0, gate: null },
    ]);
  });

  it("refuses all but the first event of a message index [ENC-9]", () => {
    const indexDigest = sha256("index");
    const jobs = [
      job("q1", { indexDigest, ghost: ghost("a") }),
      job("q1", { indexDigest, ghost: ghost("b") }),
      job("q2", { indexDigest, position: 1 }),
    ];
    assert.deepEqual(summary(placed(jobs)).slice(2), [[event("q2"), null, null, "event_replayed"]]);
    const used = new Map([[indexKey(indexDigest), event("q2")]]);
    const later = place(arrived(jobs), NOTHING, used, 0, WIDE);
    assert.deepEqual(
      later.jobs.map(({ denied }) => denied),
      ["event_replayed", "event_replayed", null],
    );
    assert.deepEqual(
      placeAt(7, jobs.slice(0, 2), NOTHING, used, 0, WIDE).map(({ seq, denied }) => [seq, denied]),
      [
        [null, "event_replayed"],
        [null, "event_replayed"],
      ],
    );
  });

  it("gives an intake envelope's slot to its first delegation alone [ENC-5]", () => {
    const known: KnownPlaces = { ...NOTHING, rooms: [[room("r"), true, 5, 10]] };
    const jobs = ["a", "b", "c"].map((who) => job("e", { ghost: ghost(who) }));
    const at = (open: number, capacity: typeof WIDE) =>
      placeAt(7, jobs, known, new Map(), open, capacity).map(({ seq, ordinal, siblings, denied }) =>
        denied === null ? [seq, ordinal, siblings] : denied,
      );
    assert.deepEqual(at(5, { room: 6, global: 9 }), [[7, 0, 2], [7, 1, 2], "room_capacity_exceeded"]);
    assert.deepEqual(at(9, { room: 9, global: 9 }), [
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
        const result = placed(all, known, 1, { room: perRoom, global: inAll });
        const totals = roomTotals(result);
        const slots = totals.reduce((sum, total) => sum + total.slots, 0);
        assert.ok(slots <= Math.max(0, inAll - 1));
        for (const { room: where, places, slots: here, gate } of totals) {
          const first = where === room("r0") ? 5 : 1;
          assert.ok(here <= Math.max(0, perRoom - (first === 5 ? 1 : 0)));
          const jobs = result.jobs.filter(({ job: { room: its } }) => its === where);
          const envelopes = result.envelopes.filter(({ envelope: { room: its } }) => its === where);
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
