// Queries of devices' keys against a homeserver whose answer is longer than the 8 MiB that are read of one.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Homeserver } from "../../../../src/bridge/matrix/homeserver.ts";
import type { Outcome } from "../../../../src/bridge/matrix/request-result.ts";
import { scriptedHomeserver } from "../../../support/http-server.ts";
import { ghost } from "../../../support/ledger.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const MINUTE = 60_000;
const SMALL = { keys: "k" };
/** Two of them are longer than 8 MiB, one is not. */
const LARGE = { keys: "k".repeat(5 * 1024 * 1024) };
const TOO_LARGE = { keys: "k".repeat(8 * 1024 * 1024) };

describe("a query of many users' keys", () => {
  it("whose answer is too large is made by halves, without a user whose keys alone are too large [ENC-4]", async (t) => {
    const users: Record<string, object> = {};
    for (let n = 0; n < 10; n++) users[`@user${n}:b.test`] = SMALL;
    users["@large1:b.test"] = LARGE;
    users["@large2:b.test"] = LARGE;
    users["@huge:b.test"] = TOO_LARGE;
    const script = await scriptedHomeserver(t, ({ body }) => {
      const asked = Object.keys((body as { device_keys: object }).device_keys);
      return {
        body: {
          device_keys: Object.fromEntries(asked.map((user) => [user, { DEVICE: users[user] }])),
          failures: {},
        },
      };
    });
    const clock = new ManualClock(0);
    const reported: string[] = [];
    const homeserver = new Homeserver({
      url: script.url,
      asToken: "token",
      requestTimeoutMs: 30_000,
      clock,
      onKeysTooLarge: (user) => reported.push(user),
    });
    t.after(() => homeserver.close());
    const query = (names: readonly string[]) =>
      homeserver.devices.submit(
        { ghost: ghost(), deviceId: "D" },
        {
          id: "1",
          kind: "keys_query",
          body: JSON.stringify({
            timeout: 5_000,
            device_keys: Object.fromEntries(names.map((name) => [name, []])),
          }),
        },
      );
    const answered = (outcome: Outcome<string>) =>
      outcome.kind === "ok"
        ? Object.keys((JSON.parse(outcome.value) as { device_keys: object }).device_keys)
        : outcome.kind;
    /** As a machine does: whoever is missing in an answer is asked for again. */
    const queryAll = async () => {
      let missing = Object.keys(users);
      for (;;) {
        const found = answered(await query(missing));
        if (!Array.isArray(found)) return { missing, end: found };
        missing = missing.filter((user) => !found.includes(user));
      }
    };
    assert.deepEqual(await queryAll(), { missing: ["@huge:b.test"], end: "refused" });
    assert.deepEqual(reported, ["@huge:b.test"]);
    const made = script.requests.length;
    assert.ok(made < 30, `${made} requests`);
    assert.equal(answered(await query(["@huge:b.test"])), "refused");
    assert.equal(script.requests.length, made, "not before a minute has passed");
    clock.advance(MINUTE);
    assert.equal(answered(await query(["@huge:b.test"])), "refused");
    clock.advance(MINUTE);
    assert.equal(answered(await query(["@huge:b.test"])), "refused");
    assert.equal(script.requests.length, made + 1, "the wait is doubled");
    users["@huge:b.test"] = SMALL;
    clock.advance(MINUTE);
    assert.deepEqual(answered(await query(["@huge:b.test"])), ["@huge:b.test"]);
  });

  it("is made server by server when it is not answered in time, and then without a server that holds it up [ENC-7] [DEL-10]", async (t) => {
    const isHeldUp = (user: string) => user.endsWith(":silent.test");
    const script = await scriptedHomeserver(t, ({ body }) => {
      const asked = Object.keys((body as { device_keys: object }).device_keys);
      if (asked.some(isHeldUp)) return "hang";
      return { body: { device_keys: Object.fromEntries(asked.map((user) => [user, {}])), failures: {} } };
    });
    const clock = new ManualClock(0);
    const homeserver = new Homeserver({ url: script.url, asToken: "token", requestTimeoutMs: 500, clock });
    t.after(() => homeserver.close());
    const query = async (...users: string[]) => {
      const device_keys = Object.fromEntries(users.map((user) => [user, []]));
      const request = { id: "1", kind: "keys_query", body: JSON.stringify({ device_keys }) } as const;
      const outcome = await homeserver.devices.submit({ ghost: ghost(), deviceId: "D" }, request);
      if (outcome.kind !== "ok") return outcome.kind;
      return Object.keys((JSON.parse(outcome.value) as { device_keys: object }).device_keys).sort();
    };
    const well = ["@alice:a.test", "@bob:b.test", "@carol:c.test"];
    const silent = ["@one:silent.test", "@two:silent.test"];
    assert.deepEqual(await query(...silent, ...well), well);
    const made = script.requests.length;
    assert.deepEqual(await query(...well, ...silent), well);
    assert.equal(script.requests.length, made + 1, "it is not asked about before a minute has passed");
    clock.advance(MINUTE);
    assert.deepEqual(await query(...well, ...silent), well);
    assert.ok(script.requests.length > made + 2, "it is asked about again");
    script.script = () => "hang";
    assert.equal(await query(...well), "retry", "the homeserver itself is silent");
  });
});
