// Several holders and admissions at once, on one database.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { ClaimedDelegation } from "../../../../src/bridge/ledger/leases.ts";
import {
  ACCEPTED,
  BUCKET,
  event,
  ghost,
  job,
  LEASE_MS,
  ledgerFixture,
  PART,
  room,
  T0,
} from "../../../support/ledger.ts";

describe("concurrent holders", () => {
  it("drain rooms side by side: each delegation once, each room in order [DEL-9]", async (t) => {
    const { delegations, admit, claim, rows } = await ledgerFixture(t, 16);
    const ROOMS = 12;
    const EACH = 10;
    const wanted = ROOMS * EACH;
    const finished: ClaimedDelegation[] = [];
    const admitting = (async () => {
      for (let n = 0; n < EACH; n++) {
        await admit(Array.from({ length: ROOMS }, (_, r) => job(`r${r}-${n}`, { room: room(`r${r}`) })));
      }
    })();
    const worker = async (holder: string) => {
      while (finished.length < wanted) {
        for (const one of await claim({ holder, limit: 3 })) {
          await delegations.beginDispatch(one.lease, { ...BUCKET, burst: 1_000 }, T0);
          finished.push(one);
          await delegations.recordAccepted(one.lease, ACCEPTED, T0);
          await delegations.recordReply(one.lease, { parts: [PART], agentVersion: undefined }, T0);
          await delegations.finish(one.lease, { state: "completed", stage: "reply", reason: "answered" }, T0);
        }
      }
    };
    await Promise.all([admitting, ...Array.from({ length: 8 }, (_, index) => worker(`holder-${index}`))]);
    assert.equal(finished.length, wanted);
    for (let r = 0; r < ROOMS; r++) {
      const order = finished.filter((one) => one.roomId === room(`r${r}`)).map((one) => one.sourceEventId);
      assert.deepEqual(
        order,
        Array.from({ length: EACH }, (_, n) => event(`r${r}-${n}`)),
      );
    }
    assert.deepEqual(
      await rows(`SELECT sum(open_count)::int AS open, count(head_at)::int AS heads,
      (SELECT count(*)::int FROM bridge_audit) AS audits FROM bridge_rooms`),
      [{ open: 0, heads: 0, audits: wanted }],
    );
  });

  type Action =
    | { kind: "admit"; room: number; ghosts: number }
    | { kind: "claim"; holder: number }
    | { kind: "begin" | "accept" | "reply" | "finish" | "defer" | "release"; which: number }
    | { kind: "redact"; event: number }
    | { kind: "wait"; ms: number };

  const actions: fc.Arbitrary<Action> = fc.oneof(
    {
      weight: 3,
      arbitrary: fc.record({
        kind: fc.constant("admit"),
        room: fc.nat(2),
        ghosts: fc.integer({ min: 1, max: 2 }),
      }),
    },
    { weight: 4, arbitrary: fc.record({ kind: fc.constant("claim"), holder: fc.nat(2) }) },
    {
      weight: 6,
      arbitrary: fc.record({
        kind: fc.constantFrom("begin", "accept", "reply", "finish", "defer", "release"),
        which: fc.nat(9),
      }),
    },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant("redact"), event: fc.nat(9) }) },
    {
      weight: 2,
      arbitrary: fc.record({ kind: fc.constant("wait"), ms: fc.constantFrom(1, 5_000, LEASE_MS) }),
    },
  ) as fc.Arbitrary<Action>;

  it("renew leases while admissions run, without deadlocks [DEL-9]", async (t) => {
    const { delegations, admit, claim } = await ledgerFixture(t, 12);
    const names = Array.from({ length: 40 }, (_, n) => `r${(n * 17) % 40}`);
    await admit(names.map((name) => job(`first-${name}`, { room: room(name) })));
    const held = await claim({ limit: 40 });
    assert.equal(held.length, 40);
    const leases = held.map((one) => one.lease);
    const renewing = Array.from({ length: 60 }, (_, n) => delegations.renew(leases, T0 + LEASE_MS + n));
    const admitting = Array.from({ length: 60 }, (_, n) =>
      admit(
        [...names].reverse().map((name) => job(`${n}-${name}`, { room: room(name) })),
        {
          capacity: { room: 1_000, global: 100_000 },
        },
      ),
    );
    const results = await Promise.all([...renewing, ...admitting]);
    assert.equal(results.length, 120);
  });

  it("lose nothing and keep every room's order under random histories", async (t) => {
    const { delegations, pool, admit, claim, rows } = await ledgerFixture(t);
    let run = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(actions, { minLength: 5, maxLength: 40 }), async (steps) => {
        run += 1;
        await pool.query(
          `TRUNCATE bridge_delegations, bridge_sends, bridge_rooms, bridge_audit, bridge_notices,
           bridge_transactions, bridge_limiter RESTART IDENTITY`,
        );
        let now = T0;
        let admitted = 0;
        const begun: string[] = [];
        const held: ClaimedDelegation[] = [];
        const attempt = async (work: Promise<unknown>) => {
          try {
            return await work;
          } catch (error) {
            // A lease lost, or a transition the state does not have: refused by the statement, nothing written.
            assert.equal((error as { code?: string }).code, "lease_lost");
            return "lost";
          }
        };
        const act = async (one: ClaimedDelegation, kind: string) => {
          switch (kind) {
            case "begin":
              if (
                (await attempt(delegations.beginDispatch(one.lease, { ...BUCKET, burst: 9_999 }, now))) ===
                "begun"
              ) {
                begun.push(`${one.roomId} ${one.sourceEventId} ${one.ghost}`);
              }
              break;
            case "accept":
              await attempt(delegations.recordAccepted(one.lease, ACCEPTED, now));
              break;
            case "reply":
              await attempt(
                delegations.recordReply(one.lease, { parts: [PART, PART], agentVersion: undefined }, now),
              );
              break;
            case "finish":
              await attempt(
                delegations.finish(
                  one.lease,
                  { state: "failed", stage: "dispatch", reason: "agent_failed", notice: "delegation_failed" },
                  now,
                ),
              );
              break;
            case "defer":
              await attempt(delegations.defer(one.lease, now + 5_000));
              break;
            case "release":
              await delegations.release([one.lease], now);
              break;
          }
        };
        for (const step of steps) {
          switch (step.kind) {
            case "admit": {
              const name = `run${run}-${admitted}`;
              const jobs = Array.from({ length: step.ghosts }, (_, g) =>
                job(name, { room: room(`r${step.room}`), ghost: ghost(`g${g}`) }),
              );
              await admit(jobs, { receivedAt: now });
              admitted += 1;
              break;
            }
            case "claim":
              held.push(...(await claim({ holder: `h${step.holder}`, limit: 2, now })));
              break;
            case "redact":
              await admit([], {
                redacted: [0, 1, 2].map((r) => ({
                  room: room(`r${r}`),
                  event: event(`run${run}-${step.event}`),
                })),
                receivedAt: now,
              });
              break;
            case "wait":
              now += step.ms;
              break;
            default: {
              const one = held[step.which % Math.max(1, held.length)];
              if (one !== undefined) await act(one, step.kind);
            }
          }
        }
        // Now let one patient holder finish whatever is left.
        for (let round = 0; round < 200; round++) {
          now += LEASE_MS;
          const left = await claim({ holder: "last", limit: 50, now });
          if (left.length === 0) break;
          for (const one of left) {
            if (one.resumedFrom === "queued" || one.resumedFrom === "dispatching") await act(one, "begin");
            await act(one, "finish");
          }
        }
        const [sum] = await rows(`SELECT
        (SELECT count(*)::int FROM bridge_delegations WHERE terminal_at IS NULL) AS open,
        (SELECT coalesce(sum(open_count), 0)::int FROM bridge_rooms) AS counted,
        (SELECT count(*)::int FROM bridge_rooms WHERE head_at IS NOT NULL) AS heads,
        (SELECT count(*)::int FROM bridge_delegations) - (SELECT count(*)::int FROM bridge_audit) AS unaudited,
        (SELECT count(*)::int FROM bridge_delegations WHERE prompt IS NOT NULL)
          + (SELECT count(*)::int FROM bridge_sends WHERE content IS NOT NULL) AS content`);
        assert.deepEqual(sum, { open: 0, counted: 0, heads: 0, unaudited: 0, content: 0 });
        // First calls of the agents follow the order of admission in each room.
        const places = new Map(
          (
            await rows(
              "SELECT room_id, matrix_event_id, ghost_mxid, room_seq::int * 10 + room_ordinal AS place FROM bridge_delegations",
            )
          ).map((row) => [
            `${row["room_id"]} ${row["matrix_event_id"]} ${row["ghost_mxid"]}`,
            row["place"] as number,
          ]),
        );
        for (const r of [0, 1, 2]) {
          const first = [...new Set(begun.filter((key) => key.startsWith(`${room(`r${r}`)} `)))].map(
            (key) => places.get(key) ?? -1,
          );
          assert.deepEqual(
            first,
            [...first].sort((a, b) => a - b),
          );
        }
      }),
      { numRuns: 60 },
    );
  });
});
