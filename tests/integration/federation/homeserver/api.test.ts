import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import type { RoomId } from "../../../../src/domain/identifiers.ts";
import { HomeserverAccess } from "../../../../src/federation/homeserver/api.ts";
import { SynapseAdminApi } from "../../../../src/federation/homeserver/synapse-admin-api.ts";
import { type Script, scriptedHomeserver } from "../../../support/http-server.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const NOW = Date.UTC(2026, 0, 1);
const ban = (api: HomeserverAccess, method: "PUT" | "POST" = "PUT") =>
  api.call(method, "to ban", ["_matrix", "ban"], { body: {} });

/** A homeserver that answers in turn, the last answer again and again. */
async function answering(t: TestContext, ...answers: ReturnType<Script>[]) {
  const server = await scriptedHomeserver(
    t,
    () => answers[Math.min(server.requests.length, answers.length) - 1] ?? {},
  );
  const clock = new ManualClock(NOW);
  let told = 0;
  const api = new HomeserverAccess(server.url, "token", clock, () => {
    told += 1;
  });
  t.after(() => api.close());
  /** Resolves once somebody sleeps; how long. */
  const asleep = async () => {
    while (clock.wakeTimes.length === 0) await new Promise((resolve) => setImmediate(resolve));
    return (clock.wakeTimes[0] ?? 0) - clock.now();
  };
  return { server, clock, api, asleep, told: () => told };
}

describe("HomeserverAccess", () => {
  it("a request that was limited is repeated when the homeserver said, and not before [PLN-2]", async (t) => {
    const limited = { status: 429, body: { errcode: "M_LIMIT_EXCEEDED", retry_after_ms: 1_500 } };
    const { server, clock, api, asleep, told } = await answering(
      t,
      limited,
      { status: 429, headers: { "retry-after": "3" }, body: {} },
      { body: { event_id: "$ban" } },
    );
    const answered = ban(api);
    assert.equal(await asleep(), 1_500);
    assert.equal(told(), 0);
    await clock.advance(1_499);
    assert.equal(server.requests.length, 1);
    await clock.advance(1);
    assert.equal(await asleep(), 3_000, "the header counts as the body does");
    assert.equal(told(), 1, "who waits for more than two seconds is told");
    await clock.advance(3_000);
    assert.deepEqual((await answered).body, { event_id: "$ban" });
    assert.equal(server.requests.length, 3);
  });

  it("a request that is limited without end returns the 429 [PLN-2]", async (t) => {
    const { server, clock, api, asleep } = await answering(t, {
      status: 429,
      headers: { "retry-after": "200" },
      body: {},
    });
    const answered = ban(api);
    for (let waits = 0; waits < 3; waits++) await clock.advance(await asleep());
    assert.equal((await answered).status, 429);
    assert.equal(server.requests.length, 4);
  });

  it("a request that is limited for longer than it may be waited for returns the 429 [PLN-2]", async (t) => {
    const headers = { "retry-after": "200" };
    const { server, clock, api, asleep } = await answering(t, { status: 429, headers, body: {} });
    const answered = api.call("POST", "to invite", ["invite"], { limitedMaxMs: 5_000 });
    await clock.advance(await asleep());
    assert.equal((await answered).status, 429);
    assert.deepEqual([clock.now() - NOW, server.requests.length], [5_000, 2]);
  });

  it("a homeserver that limits for a day is not waited for that long [PLN-2]", async (t) => {
    const headers = { "retry-after": "86400" };
    const { clock, api, asleep } = await answering(t, { status: 429, headers, body: {} });
    const answered = ban(api);
    const waited = await asleep();
    assert.equal(waited, 600_000);
    await clock.advance(waited);
    assert.equal((await answered).status, 429);
  });

  it("a POST without an answer is not repeated [PLN-2]", async (t) => {
    for (const failure of ["reset", { status: 502 }] as const) {
      const { server, api } = await answering(t, failure);
      await assert.rejects(ban(api, "POST"), {
        code: "homeserver_unavailable",
      });
      assert.equal(server.requests.length, 1);
    }
    const { server, clock, api, asleep } = await answering(t, "reset", { body: { event_id: "$ban" } });
    const answered = ban(api);
    await clock.advance(await asleep());
    assert.equal((await answered).status, 200);
    assert.equal(server.requests.length, 2);
  });

  it("a request with a time of its own is not repeated when it takes longer [PLN-2]", async (t) => {
    const { server, clock, api } = await answering(t, "hang");
    const answered = api.call("GET", "to read", ["_matrix"], { timeoutMs: 50 });
    await clock.advance(50);
    await assert.rejects(answered, { code: "homeserver_unavailable" });
    assert.equal(server.requests.length, 1);
  });

  it("rooms whose names are too long for one page are listed by smaller ones [PLN-2]", async (t) => {
    const names = Array.from({ length: 40 }, (_, number) => `!${number}`);
    const server = await scriptedHomeserver(t, ({ query }) => {
      const [from, limit] = [Number(query.get("from")), Number(query.get("limit"))];
      // What would be longer than any answer that is read is no JSON here.
      if (limit > 16) return { body: "" };
      assert.equal(query.get("order_by"), "creator");
      const rooms = names.slice(from, from + limit).map((room_id) => ({ room_id }));
      return { body: { rooms, ...(from + limit < names.length && { next_batch: from + limit }) } };
    });
    const api = new SynapseAdminApi(server.url, "token", new ManualClock(NOW));
    t.after(() => api.close());
    assert.deepEqual(await api.rooms(), names);
    assert.equal(server.requests.length, 4);
  });

  it("a room does not exist where the homeserver says so, not where a proxy or another version knows no such address [PLN-2]", async (t) => {
    const server = await scriptedHomeserver(t, ({ path }) => {
      const unknown = { status: 404, body: { errcode: "M_UNRECOGNIZED", error: "Unrecognized request" } };
      if (path.includes("unrouted")) return unknown;
      if (path.includes("proxied")) return { status: 404, body: "<html>Not Found</html>" };
      return { status: 404, body: { errcode: "M_NOT_FOUND", error: "Room not found" } };
    });
    const api = new SynapseAdminApi(server.url, "token", new ManualClock(NOW));
    t.after(() => api.close());
    assert.equal(await api.roomState("!gone:a.test" as RoomId), undefined);
    for (const room of ["!unrouted:a.test", "!proxied:a.test"])
      await assert.rejects(api.roomState(room as RoomId), { code: "homeserver_refused" });
  });

  it("a token is not sent to where a redirect points [PLN-2]", async (t) => {
    const elsewhere = await scriptedHomeserver(t);
    const { api } = await answering(t, { status: 307, headers: { location: elsewhere.url } });
    assert.equal((await ban(api)).status, 307);
    assert.equal(elsewhere.requests.length, 0);
  });

  it("an identifier that no address can hold counts as a homeserver without an answer [PLN-2]", async (t) => {
    const { server, api } = await answering(t, {});
    await assert.rejects(api.call("POST", "to purge the room", ["_synapse", "!\ud800:a.test"]), {
      code: "homeserver_unavailable",
    });
    assert.equal(server.requests.length, 0);
  });
});
