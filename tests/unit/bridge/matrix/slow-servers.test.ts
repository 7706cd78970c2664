// A server that answers for its users' keys in time, and so late each time that the answers in all rooms of a ghost wait for it.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  createKeysClaim,
  createKeysQuery,
  createPatience,
} from "../../../../src/bridge/matrix/keys-query.ts";
import { ok } from "../../../../src/bridge/matrix/request-result.ts";
import { isObject, type UnknownObject } from "../../../../src/domain/json.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const SECOND = 1_000;
const OWN = "a.test";
const SLOW = "slow.test";
const SLOW_USER = `@eve:${SLOW}`;
const WELL = ["@alice:a.test", ...Array.from({ length: 40 }, (_, n) => `@user:server${n}.test`)];

describe("a server that lets a homeserver wait again and again", () => {
  for (const kind of ["query", "claim"] as const) {
    const part = kind === "query" ? "device_keys" : "one_time_keys";

    /** Asks for the same users once a minute, as a machine does until none is missing. */
    async function hours(count: number, waitMs: (asked: readonly string[]) => number) {
      const clock = new ManualClock(0);
      const patience = createPatience(clock);
      const ask = kind === "query" ? createKeysQuery(clock, patience) : createKeysClaim(patience);
      const heldUp: number[] = [];
      const missing = new Set<string>();
      for (let minute = 0; minute < 60 * count; minute++) {
        const begun = clock.now();
        let open = [SLOW_USER, ...WELL];
        for (let round = 0; round < 16 && open.length > 0; round++) {
          const asked = Object.fromEntries(open.map((user) => [user, []]));
          const outcome = await ask({ [part]: asked }, OWN, async ({ [part]: users }) => {
            const names = Object.keys(users as UnknownObject);
            clock.advance(waitMs(names));
            return ok({ [part]: users, failures: {} });
          });
          if (outcome.kind !== "ok") break;
          const { [part]: found, failures } = outcome.value;
          const isFailed = (user: string) =>
            isObject(failures) && Object.keys(failures).some((server) => user.endsWith(`:${server}`));
          for (const user of open.filter(isFailed)) missing.add(user);
          open = open.filter((user) => !(user in (found as UnknownObject)) && !isFailed(user));
          if (kind === "claim") break;
        }
        for (const user of open) missing.add(user);
        heldUp.push(clock.now() - begun);
        clock.advance(60 * SECOND);
      }
      const sum = (of: readonly number[]) => of.reduce((all, one) => all + one, 0);
      return { first: sum(heldUp.slice(0, 60)), later: sum(heldUp.slice(60)) / (count - 1), missing };
    }

    it(`holds up a ${kind} for minutes at first and for a small part of the time from then on, and keeps nobody else's keys away [ENC-7] [DEL-10]`, async () => {
      const isSlow = (asked: readonly string[]) => asked.includes(SLOW_USER);
      // It answers at once now and then.
      let turn = 0;
      const { first, later, missing } = await hours(5, (asked) =>
        isSlow(asked) && turn++ % 3 < 2 ? 25 * SECOND : 10,
      );
      assert.ok(first < 12 * 60 * SECOND, `${first / SECOND} s in the first hour`);
      assert.ok(later < 4 * 60 * SECOND, `${later / SECOND} s in an hour`);
      for (const user of WELL) assert.ok(!missing.has(user), user);
    });

    it(`is left out of no ${kind} for answers that take some seconds, however many there are [ENC-7]`, async () => {
      const isSlow = (asked: readonly string[]) => asked.includes(SLOW_USER);
      const { missing } = await hours(10, (asked) => (isSlow(asked) ? 4 * SECOND : 10));
      assert.deepEqual([...missing], []);
    });

    it(`keeps the keys of no server away from a ${kind} while the homeserver itself is slow, and holds it up no longer [ENC-7]`, async () => {
      const { missing, first, later } = await hours(2, () => 6 * SECOND);
      assert.deepEqual([...missing], []);
      for (const heldUp of [first, later])
        assert.ok(heldUp < 10 * 60 * SECOND, `${heldUp / SECOND} s an hour`);
    });
  }
});

it("a user who has other devices again and again is asked about rarely by and by, and no other one is [ENC-7] [DEL-10]", async () => {
  const clock = new ManualClock(0);
  const ask = createKeysQuery(clock, createPatience(clock));
  const [BUSY, OTHER] = ["@eve:busy.test", "@alice:busy.test"];
  const keysOf = (user: string, now: number) => {
    const [count, lastsMs] = user === BUSY ? [200, SECOND] : [10, 3_600 * SECOND];
    const of = Math.floor(now / lastsMs);
    return Object.fromEntries(Array.from({ length: count }, (_, n) => [`D${n}`, { of }]));
  };
  let times = 0;
  const HOURS = 24;
  for (let minute = 0; minute < 60 * HOURS; minute++) {
    const outcome = await ask({ device_keys: { [BUSY]: [], [OTHER]: [] } }, OWN, async (body) => {
      const asked = Object.keys(body["device_keys"] as UnknownObject);
      return ok({ device_keys: Object.fromEntries(asked.map((user) => [user, keysOf(user, clock.now())])) });
    });
    assert.equal(outcome.kind, "ok");
    const { device_keys: answered } = outcome.kind === "ok" ? outcome.value : {};
    assert.ok(isObject(answered) && OTHER in answered);
    if (BUSY in answered) times += 1;
    clock.advance(60 * SECOND);
  }
  assert.ok(times > 10 && times < 30, `asked about ${times} times`);
});
