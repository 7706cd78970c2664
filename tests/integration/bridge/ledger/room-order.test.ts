// The order of rooms under random histories and concurrent holders, with and without intake envelopes.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { NewDelegation, NewIntakeEnvelope } from "../../../../src/bridge/ledger/admission-types.ts";
import type { ClaimedIntakeEnvelope } from "../../../../src/bridge/ledger/intake-envelopes.ts";
import type { ClaimedDelegation } from "../../../../src/bridge/ledger/leases.ts";
import {
  ACCEPTED,
  arrivals,
  asking,
  BUCKET,
  claimEnvelopes,
  envelope,
  event,
  ghost,
  job,
  LEASE_MS,
  type LedgerFixture,
  ledgerFixture,
  PART,
  room,
  T0,
} from "../../../support/ledger.ts";

const MANY = { ...BUCKET, burst: 99_999 };
const FAILED = {
  state: "failed",
  stage: "dispatch",
  reason: "agent_failed",
  notice: "delegation_failed",
} as const;
/** In this room no event is encrypted. */
const PLAIN_ROOM = 2;
const CAPACITY = { room: 8, global: 12 };

/** A lease lost, or a transition the state does not have: refused by the statement, nothing written. */
async function attempt<Result>(work: Promise<Result>): Promise<Result | undefined> {
  try {
    return await work;
  } catch (error) {
    assert.equal((error as { code?: string }).code, "lease_lost", String(error));
    return undefined;
  }
}

const jobsOf = ({ event: source, room: where }: ClaimedIntakeEnvelope, count: number) =>
  Array.from({ length: count }, (_, g) => job(source.slice(1), { room: where, ghost: ghost(`g${g}`) }));

const called = (one: ClaimedDelegation) => `${one.roomId} ${one.sourceEventId} ${one.ghost}`;

/** Nothing is open, no place is left behind, every terminal row that is to be audited is. */
async function assertSettled({ rows }: Pick<LedgerFixture, "rows">): Promise<void> {
  const [sum] = await rows(`SELECT
    (SELECT count(*)::int FROM bridge_delegations WHERE terminal_at IS NULL) AS open,
    (SELECT count(*)::int FROM bridge_encrypted_intake WHERE terminal_at IS NULL) AS awaiting,
    (SELECT coalesce(sum(open_count), 0)::int FROM bridge_rooms) AS counted,
    (SELECT count(*)::int FROM bridge_rooms
     WHERE head_at IS NOT NULL OR gate_seq IS NOT NULL OR NOT isempty(voids) OR head_seq <> next_seq) AS rooms,
    (SELECT count(*)::int FROM bridge_delegations) - (SELECT count(*)::int FROM bridge_audit
      WHERE schema = 'svc.delegation.v1') AS unaudited,
    (SELECT count(*)::int FROM bridge_encrypted_intake WHERE state = 'expired') - (SELECT count(*)::int FROM bridge_audit
      WHERE schema = 'svc.encrypted_intake.v1') AS unaudited_envelopes,
    (SELECT count(*)::int FROM bridge_encrypted_intake e WHERE e.jobs <> (SELECT count(*) FROM bridge_delegations d
      WHERE d.matrix_event_id = e.matrix_event_id AND d.room_seq IS NOT NULL)) AS miscounted,
    (SELECT count(*)::int FROM bridge_delegations WHERE prompt IS NOT NULL)
      + (SELECT count(*)::int FROM bridge_sends WHERE content IS NOT NULL) AS content`);
  assert.deepEqual(sum, {
    open: 0,
    awaiting: 0,
    counted: 0,
    rooms: 0,
    unaudited: 0,
    unaudited_envelopes: 0,
    miscounted: 0,
    content: 0,
  });
}

/** Places follow the order of arrival, which names end with; first calls of agents follow the places. */
async function assertOrder({ rows }: Pick<LedgerFixture, "rows">, begun: readonly string[]): Promise<void> {
  const found = await rows(
    "SELECT room_id, matrix_event_id, ghost_mxid, room_seq::int * 10 + room_ordinal AS place FROM bridge_delegations",
  );
  const places = new Map(
    found.map((row) => [
      `${row["room_id"]} ${row["matrix_event_id"]} ${row["ghost_mxid"]}`,
      row["place"] as number,
    ]),
  );
  for (const where of new Set(found.map((row) => row["room_id"] as string))) {
    const order = [...new Set(begun.filter((key) => key.startsWith(`${where} `)))].map(
      (key) => places.get(key) ?? -1,
    );
    assert.deepEqual(
      order,
      [...order].sort((a, b) => a - b),
      where,
    );
    const taken = await rows(
      `SELECT matrix_event_id AS event FROM (
         SELECT matrix_event_id, room_seq FROM bridge_delegations WHERE room_id = $1 AND room_seq IS NOT NULL
         UNION SELECT matrix_event_id, room_seq FROM bridge_encrypted_intake WHERE room_id = $1
           AND room_seq IS NOT NULL) placed
       ORDER BY room_seq`,
      [where],
    );
    const numbers = taken.map((row) => Number(String(row["event"]).replace(/^.*-/, "")));
    assert.deepEqual(
      numbers,
      [...numbers].sort((a, b) => a - b),
      where,
    );
  }
}

/** What open_count says of each room is what is open in it. */
async function assertCounted({ rows }: Pick<LedgerFixture, "rows">): Promise<void> {
  const wrong = await rows(`SELECT r.room_id, r.open_count FROM bridge_rooms r WHERE r.open_count <>
    (SELECT count(*) FROM bridge_delegations d WHERE d.room_id = r.room_id AND d.terminal_at IS NULL)`);
  assert.deepEqual(wrong, []);
}

type Action =
  | { kind: "admit"; room: number; what: readonly number[] }
  | { kind: "claim" | "claim_envelopes"; holder: number; limit: number }
  | { kind: "begin" | "accept" | "reply" | "finish" | "defer" | "release"; which: number }
  | { kind: "derive"; which: number; jobs: number }
  | { kind: "expire" | "put_off"; which: number }
  | { kind: "wake"; room: number }
  | { kind: "redact"; event: number }
  | { kind: "wait"; ms: number };

const record = <Kind extends Action["kind"]>(...kinds: [Kind, ...Kind[]]) => fc.constantFrom(...kinds);
const actions = fc.oneof(
  {
    weight: 4,
    // 0: an intake envelope; n: an event that n ghosts are asked by.
    arbitrary: fc.record({
      kind: record("admit"),
      room: fc.nat(PLAIN_ROOM),
      what: fc.array(fc.constantFrom(0, 0, 1, 2), { minLength: 1, maxLength: 4 }),
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      kind: record("claim", "claim_envelopes"),
      holder: fc.nat(2),
      limit: fc.integer({ min: 1, max: 4 }),
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      kind: record("begin", "accept", "reply", "finish", "defer", "release"),
      which: fc.nat(9),
    }),
  },
  { weight: 6, arbitrary: fc.record({ kind: record("derive"), which: fc.nat(9), jobs: fc.nat(3) }) },
  { weight: 2, arbitrary: fc.record({ kind: record("expire", "put_off"), which: fc.nat(9) }) },
  { weight: 1, arbitrary: fc.record({ kind: record("wake"), room: fc.nat(1) }) },
  { weight: 1, arbitrary: fc.record({ kind: record("redact"), event: fc.nat(19) }) },
  { weight: 2, arbitrary: fc.record({ kind: record("wait"), ms: fc.constantFrom(1, 5_000, LEASE_MS) }) },
) as fc.Arbitrary<Action>;

/** Longer than every history. */
const NO_GATE_MS = 86_400_000;

describe("rooms", () => {
  for (const [gate, gateMs] of [
    ["keep their order while no head is left behind", NO_GATE_MS],
    ["may be past heads that do not get on", 6_000],
  ] as const)
    it(`lose nothing, keep their slots, and ${gate}, under random histories [ENC-10]`, async (t) => {
      const fixture = await ledgerFixture(t, 10, gateMs);
      const { ledger, delegations, pool, admit, claim } = fixture;
      let run = 0;
      await fc.assert(
        fc.asyncProperty(fc.array(actions, { minLength: 5, maxLength: 40 }), async (steps) => {
          run += 1;
          await pool.query(
            `TRUNCATE bridge_delegations, bridge_sends, bridge_rooms, bridge_audit, bridge_notices, bridge_handled_events,
           bridge_limiter, bridge_encrypted_intake RESTART IDENTITY CASCADE;
         UPDATE bridge_capacity SET admitted = 0, counted_open = 0, counted_at_admitted = 0`,
          );
          let now = T0;
          let arrived = 0;
          const begun: string[] = [];
          const held: ClaimedDelegation[] = [];
          const envelopes: ClaimedIntakeEnvelope[] = [];
          const nameOf = (n: number) => `run${run}-${n}`;
          const begin = async (one: ClaimedDelegation) => {
            if ((await attempt(delegations.beginDispatch(one.lease, MANY, now))) === "begun")
              begun.push(called(one));
          };
          const derive = (one: ClaimedIntakeEnvelope, count: number) =>
            attempt(ledger.envelopes.derive(one, asking(one, jobsOf(one, count), CAPACITY), now));
          const act = async (step: Action) => {
            const one = "which" in step ? held[step.which % Math.max(1, held.length)] : undefined;
            const waiting =
              "which" in step ? envelopes[step.which % Math.max(1, envelopes.length)] : undefined;
            switch (step.kind) {
              case "admit": {
                const options = { room: room(`r${step.room}`) };
                const events = step.what.flatMap((count): (NewDelegation | NewIntakeEnvelope)[] => {
                  const name = nameOf(arrived++);
                  const ghosts = step.room === PLAIN_ROOM ? Math.max(1, count) : count;
                  if (ghosts === 0) return [envelope(name, { ...options, deadline: now + 9 * LEASE_MS })];
                  return Array.from({ length: ghosts }, (_, g) =>
                    job(name, { ...options, ghost: ghost(`g${g}`) }),
                  );
                });
                await admit([], { ...arrivals(...events), receivedAt: now, capacity: CAPACITY });
                break;
              }
              case "claim":
                held.push(...(await claim({ holder: `h${step.holder}`, limit: step.limit, now })));
                break;
              case "claim_envelopes":
                envelopes.push(...(await claimEnvelopes(ledger, now, step.limit)));
                break;
              case "begin":
                if (one !== undefined) await begin(one);
                break;
              case "accept":
                if (one !== undefined) await attempt(delegations.recordAccepted(one.lease, ACCEPTED, now));
                break;
              case "reply": {
                const reply = { parts: [PART, PART], agentVersion: undefined };
                if (one !== undefined) await attempt(delegations.recordReply(one.lease, reply, now));
                break;
              }
              case "finish":
                if (one !== undefined) await attempt(delegations.finish(one.lease, FAILED, now));
                break;
              case "defer":
                if (one !== undefined) await attempt(delegations.defer(one.lease, now + 5_000));
                break;
              case "release":
                if (one !== undefined) await delegations.release([one.lease], now);
                break;
              case "derive":
                if (waiting === undefined) break;
                await derive(waiting, step.jobs);
                envelopes.splice(envelopes.indexOf(waiting), 1);
                break;
              case "expire":
                if (waiting === undefined) break;
                await attempt(ledger.envelopes.expire(waiting, "key_wait_elapsed", now));
                envelopes.splice(envelopes.indexOf(waiting), 1);
                break;
              case "put_off":
                if (waiting !== undefined) {
                  await attempt(ledger.envelopes.defer(waiting, now + 5_000, { requested: true }));
                }
                break;
              case "wake":
                await ledger.envelopes.wake([room(`r${step.room}`)], now);
                break;
              case "redact": {
                const where = [0, 1, PLAIN_ROOM].map((r) => ({
                  room: room(`r${r}`),
                  event: event(nameOf(step.event)),
                }));
                await admit([], { redacted: where, receivedAt: now });
                break;
              }
              case "wait":
                now += step.ms;
                break;
            }
          };
          for (const step of steps) {
            await act(step);
            await assertCounted(fixture);
          }
          // Now patient hands finish whatever is left.
          for (let round = 0; round < 200; round++) {
            now += LEASE_MS;
            const waiting = await claimEnvelopes(ledger, now);
            for (const [index, one] of waiting.entries()) await derive(one, index % 3);
            const left = await claim({ holder: "last", limit: 50, now });
            if (waiting.length === 0 && left.length === 0) break;
            for (const one of left) {
              if (one.resumedFrom === "queued" || one.resumedFrom === "dispatching") await begin(one);
              await attempt(delegations.finish(one.lease, FAILED, now));
            }
          }
          await assertSettled(fixture);
          if (gateMs === NO_GATE_MS) await assertOrder(fixture, begun);
        }),
        { numRuns: 60 },
      );
    });

  it("keep their order with concurrent holders of delegations and intake envelopes, without deadlocks [ENC-10]", async (t) => {
    const fixture = await ledgerFixture(t, 16);
    const { ledger, delegations, admit, claim } = fixture;
    const ROOMS = 6;
    const EACH = 12;
    const wide = { room: 1_000, global: 100_000 };
    const begun: string[] = [];
    let isAdmitting = true;
    const admitting = (async () => {
      for (let n = 0; n < EACH; n++) {
        const events = Array.from({ length: ROOMS }, (_, r) => {
          const at = { room: room(`r${r}`) };
          return (n + r) % 3 === 0 ? job(`r${r}-${n}`, at) : envelope(`r${r}-${n}`, at);
        });
        await admit([], { ...arrivals(...events), capacity: wide });
        const redacted = [{ room: room(`r${n % ROOMS}`), event: event(`r${n % ROOMS}-${n}`) }];
        if (n % 4 === 1) await admit([], { redacted, receivedAt: T0 });
      }
      isAdmitting = false;
    })();
    const isIdle = async () => {
      const [left] =
        await fixture.rows(`SELECT (SELECT count(*) FROM bridge_delegations WHERE terminal_at IS NULL)
      + (SELECT count(*) FROM bridge_encrypted_intake WHERE terminal_at IS NULL) AS open`);
      return !isAdmitting && Number(left?.["open"]) === 0;
    };
    const delegationHolder = async (holder: string) => {
      while (!(await isIdle())) {
        const held = await claim({ holder, limit: 3 });
        await delegations.renew(
          held.map(({ lease }) => lease),
          T0 + LEASE_MS,
        );
        for (const one of held) {
          if ((await delegations.beginDispatch(one.lease, MANY, T0)) === "begun") begun.push(called(one));
          await delegations.finish(one.lease, FAILED, T0);
        }
      }
    };
    const envelopeHolder = async (salt: number) => {
      for (let turn = salt; !(await isIdle()); turn++) {
        for (const one of (await claimEnvelopes(ledger, T0, 2)).reverse()) {
          if (turn % 5 === 0) await attempt(ledger.envelopes.expire(one, "undecryptable", T0));
          else await attempt(ledger.envelopes.derive(one, asking(one, jobsOf(one, turn % 3), wide), T0));
          await ledger.envelopes.wake([one.room], T0);
        }
      }
    };
    const holders = [0, 1, 2].flatMap((n) => [delegationHolder(`h${n}`), envelopeHolder(n)]);
    await Promise.all([admitting, ...holders]);
    // What ended while it waited behind the last head is stepped over by the next claim.
    assert.deepEqual(await claim(), []);
    await assertSettled(fixture);
    await assertOrder(fixture, begun);
  });
});
