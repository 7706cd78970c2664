// The order of rooms under concurrent holders, with and without intake envelopes. Random histories of single calls are
// in model.test.ts.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { ClaimedIntakeEnvelope } from "../../../../src/bridge/ledger/envelopes.ts";
import type { ClaimedDelegation } from "../../../../src/bridge/ledger/leases.ts";
import {
  arrivals,
  asking,
  BUCKET,
  claimEnvelopes,
  deadlocks,
  envelope,
  event,
  ghost,
  job,
  LEASE_MS,
  type LedgerFixture,
  ledgerFixture,
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

describe("rooms", () => {
  it("keep their order with concurrent holders of delegations and intake envelopes, without deadlocks [ENC-10]", async (t) => {
    const fixture = await ledgerFixture(t, 16);
    const { ledger, delegations, admit, claim } = fixture;
    const ROOMS = 6;
    const EACH = 12;
    const wide = { roomQueue: 1_000, globalQueue: 100_000 };
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
    assert.equal(await deadlocks(fixture.pool), 0);
    await assertSettled(fixture);
    await assertOrder(fixture, begun);
  });
});
