import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setImmediate } from "node:timers/promises";
import { Ghosts } from "../../../../src/bridge/matrix/ghosts.ts";
import { systemRandom } from "../../../../src/domain/clock.ts";
import { sha256 } from "../../../../src/domain/digest.ts";
import {
  parseMember,
  type RoomId,
  serverOf,
  type TransactionId,
  type UserId,
} from "../../../../src/domain/identifiers.ts";
import { TcpLink } from "../../../chaos/tcp-link.ts";
import { ghostSide } from "../../../support/ghosts.ts";
import { http2Server, httpServer, type Script, scriptedHomeserver } from "../../../support/http-server.ts";
import { event, ghost } from "../../../support/ledger.ts";

const TIMEOUT_MS = 300;

it("what is not shown was not accepted, unless the room hides its past and the sender is a member [DEL-2]", async (t) => {
  const roomId = "!r" as RoomId;
  let visibility = "shared";
  const { url } = await scriptedHomeserver(t, ({ path }) => {
    if (path.includes("/event/")) return { status: 404, body: { errcode: "M_NOT_FOUND" } };
    if (path.includes("/state/")) return { body: { history_visibility: visibility } };
    return { body: { joined: { "@alice:b.test": {} } } };
  });
  const { homeserver } = ghostSide(t, url);
  const isAccepted = async (sender: string) => {
    const said = { event: event("q"), sender: sender as UserId };
    const outcome = await homeserver.isAccepted({ ghost: ghost(), deviceId: "D" }, roomId, said);
    return outcome.kind === "ok" ? outcome.value : outcome;
  };
  assert.equal(await isAccepted("@alice:b.test"), false);
  visibility = "joined";
  assert.deepEqual([await isAccepted("@alice:b.test"), await isAccepted("@banned:b.test")], [true, false]);
});

it("a room of thousands of members keeps its keys and its timeline readable [ENC-7] [DEL-4]", async (t) => {
  const user = (n: number) => `@user${n}:${serverOf(ghost())}`;
  const signed = { key: "k".repeat(43), signatures: { [ghost()]: { "ed25519:DEVICE": "s".repeat(86) } } };
  const one_time_keys = Object.fromEntries(
    Array.from({ length: 14_000 }, (_, n) => [user(n), { DEVICE: "signed_curve25519" }]),
  );
  const profile = { displayname: "x", avatar_url: "mxc://x" };
  const unsigned = { age: 1, replaces_state: "$x", prev_content: { membership: "invite" } };
  const member = (n: number) => ({
    ...{ type: "m.room.member", room_id: "!r", event_id: `$${n}`, sender: user(n), state_key: user(n) },
    ...{ content: { membership: "join", ...profile }, origin_server_ts: 1, unsigned, ...unsigned },
  });
  const claims: number[] = [];
  const { url } = await scriptedHomeserver(t, ({ path, query, body }) => {
    if (path.endsWith("/keys/claim")) {
      const asked = Object.keys((body as { one_time_keys: object }).one_time_keys);
      claims.push(asked.length);
      const keys = asked.map((name) => [name, { DEVICE: { "signed_curve25519:A": signed } }]);
      return { body: { one_time_keys: Object.fromEntries(keys) } };
    }
    const isLazy = query.get("filter") === '{"lazy_load_members":true}';
    return { body: { end: "t1", state: Array.from({ length: isLazy ? 1 : 7_000 }, (_, n) => member(n)) } };
  });
  const { homeserver } = ghostSide(t, url);
  const actor = { ghost: ghost(), deviceId: "D" };
  const body = JSON.stringify({ one_time_keys });
  const answer = await homeserver.devices.submit(actor, { id: "c", kind: "keys_claim", body });
  assert.ok(answer.kind === "ok", JSON.stringify(answer));
  const read = JSON.parse(answer.value) as { one_time_keys: object };
  assert.deepEqual([Object.keys(read.one_time_keys).length, claims], [14_000, [14_000, 7_000, 7_000]]);
  const after = await homeserver.timelineAfter(actor, "!r" as RoomId, event("q"));
  assert.deepEqual(after, { kind: "ok", value: "t1" });
});

describe("requests to a faulty homeserver", () => {
  it("an answer is classified as ok, retry or refused", async (t) => {
    const server = await scriptedHomeserver(t);
    const { homeserver, clock } = ghostSide(t, server.url, { requestTimeoutMs: 1_000 });
    const date = new Date(clock.now() + 20_000).toUTCString();
    const matrix = (errcode: string, more = {}) => ({ errcode, error: "secret words", ...more });
    const cases: readonly [ReturnType<Script>, object][] = [
      [
        { status: 429, body: matrix("M_LIMIT_EXCEEDED", { retry_after_ms: 7_500 }) },
        { cause: "rate_limited", afterMs: 7_500 },
      ],
      [
        { status: 429, headers: { "retry-after": "12" }, body: "" },
        { cause: "rate_limited", afterMs: 12_000 },
      ],
      [
        { status: 503, headers: { "retry-after": date }, body: "" },
        { cause: "server_error", afterMs: 20_000 },
      ],
      [
        { status: 429, headers: { "retry-after": "999999" } },
        { cause: "rate_limited", afterMs: 300_000 },
      ],
      [
        { status: 429, headers: { "retry-after": "soon" } },
        { cause: "rate_limited", afterMs: 1_000 },
      ],
      [
        { status: 429, body: matrix("M_LIMIT_EXCEEDED", { retry_after_ms: -1 }) },
        { cause: "rate_limited", afterMs: 1_000 },
      ],
      [
        { status: 500, body: "<html>" },
        { cause: "server_error", afterMs: 1_000 },
      ],
      [
        { status: 401, body: matrix("M_UNKNOWN_TOKEN") },
        { cause: "unauthorized", afterMs: 30_000 },
      ],
      [
        { status: 302, headers: { location: "http://127.0.0.1:9/" } },
        { cause: "malformed", afterMs: 30_000 },
      ],
      [
        { status: 404, body: "<html>not here" },
        { cause: "malformed", afterMs: 30_000 },
      ],
      [
        { status: 404, body: matrix("M_UNRECOGNIZED") },
        { cause: "malformed", afterMs: 30_000 },
      ],
      [{ body: { user_id: "not a user" } }, { cause: "malformed", afterMs: 30_000 }],
      [{ body: "{" }, { cause: "malformed", afterMs: 30_000 }],
      [
        { body: JSON.stringify({ user_id: "@a:a.test", x: "x".repeat(9_000_000) }) },
        { cause: "too_large", afterMs: 30_000 },
      ],
      [
        { body: JSON.stringify({ user_id: "@a:a.test", x: Array.from({ length: 140_000 }, () => ({})) }) },
        { cause: "too_large", afterMs: 30_000 },
      ],
      ["reset", { cause: "network", afterMs: 1_000 }],
      ["hang", { cause: "timeout", afterMs: 1_000 }],
      [
        { status: 403, body: matrix("M_FORBIDDEN") },
        { kind: "refused", status: 403, errcode: "M_FORBIDDEN" },
      ],
      [
        { status: 413, body: matrix("M_TOO_LARGE") },
        { kind: "refused", status: 413, errcode: "M_TOO_LARGE" },
      ],
    ];
    for (const [answer, expected] of cases) {
      server.script = () => answer;
      const outcome = await homeserver.whoami();
      assert.partialDeepStrictEqual(
        outcome,
        { kind: "retry", ...expected },
        JSON.stringify(answer).slice(0, 100),
      );
      assert.doesNotMatch(JSON.stringify(outcome), /secret/, "nothing of the error's text is kept");
    }
    assert.equal(
      server.requests.length,
      cases.length,
      "no request is repeated or redirected by the client itself",
    );
  });

  it("it is reached again over a new connection once one has died unnoticed, also where it offers HTTP/2 [DEL-4]", async (t) => {
    const port = await http2Server(t, (_request, response) => response.end('{"versions":[]}'));
    const link = new TcpLink(port);
    const { homeserver } = ghostSide(t, `https://localhost:${await link.listen()}`, {
      requestTimeoutMs: 1_000,
    });
    t.after(() => link.close());
    assert.equal((await homeserver.versions()).kind, "ok");
    // By then the connection is idle, and takes the next request.
    await setImmediate();
    link.set("half_open");
    assert.partialDeepStrictEqual(await homeserver.versions(), { kind: "retry", cause: "timeout" });
    link.set("open");
    assert.equal((await homeserver.versions()).kind, "ok");
  });

  it("the members of a room are read whatever the length of their profiles [INT-8]", async (t) => {
    const server = await scriptedHomeserver(t);
    const { homeserver } = ghostSide(t, server.url);
    const profile = { display_name: "x".repeat(1_000), avatar_url: `mxc://a.test/${"y".repeat(1_000)}` };
    const members = Array.from({ length: 6_000 }, (_, index) => `@member${index}:a.test`);
    // The last has a name that no user may have: it is counted, and gets no keys.
    const joined = Object.fromEntries([...members, "@eve b:evil.test"].map((member) => [member, profile]));
    server.script = () => ({ status: 200, body: { joined } });
    const actor = { ghost: ghost(), deviceId: "DEVICE" };
    const read = await homeserver.joinedMembers(actor, "!large" as RoomId);
    assert.deepEqual(read, { kind: "ok", value: members });
    const counted = await homeserver.joinedMembers(actor, "!large" as RoomId, parseMember);
    const eve = `@ ${sha256("@eve b:evil.test").toString("hex")}:evil.test`;
    assert.deepEqual(counted, { kind: "ok", value: [...members, eve] });
  });

  it("a request ends at its deadline when the answer drips", async (t) => {
    const server = await scriptedHomeserver(t, () => ({ headers: { "content-length": "1000" }, body: "{" }));
    const { homeserver } = ghostSide(t, server.url, { requestTimeoutMs: TIMEOUT_MS });
    assert.partialDeepStrictEqual(await homeserver.whoami(), { kind: "retry", cause: "timeout" });
  });

  it("what waits for other servers holds up no answer, however much of it there is [DEL-10]", async (t) => {
    const { requests, url } = await scriptedHomeserver(t, ({ path }) =>
      path.includes("/send/") ? { body: { event_id: "$sent" } } : "hang",
    );
    const { homeserver } = ghostSide(t, url, { requestTimeoutMs: 1_000 });
    const actor = { ghost: ghost(), deviceId: "D" };
    const id = (index: number) => `!${index}` as RoomId;
    const body = JSON.stringify({
      device_keys: { "@eve:evil.test": [] },
      one_time_keys: { "@eve:evil.test": {} },
    });
    const waiting = Array.from({ length: 10 }, (_, index) => [
      homeserver.join(actor, id(index), []),
      homeserver.leave(actor, id(index)),
      homeserver.download(actor, serverOf("@eve:evil.test" as UserId), "file", 1_000),
      ...(["keys_query", "keys_claim"] as const).map((kind) =>
        homeserver.devices.submit(actor, { id: kind, kind, body }),
      ),
    ]).flat();
    while (requests.length < 32) await setImmediate();
    const sent = homeserver.sendEvent(actor, id(0), "m.room.message", "t" as TransactionId, {});
    assert.deepEqual(await Promise.race([sent, ...waiting]), { kind: "ok", value: "$sent" });
  });

  it("long answers that come at once are taken in one in a turn, with other work between them [DEL-10]", async (t) => {
    const ghosts = Array.from({ length: 40 }, (_, index) => ghost(`g${index}`));
    const keys = { "@eve:evil.test": { D: { keys: { "ed25519:D": "k".repeat(70_000) } } } };
    const asked = Promise.withResolvers<void>();
    const { url, requests } = await scriptedHomeserver(t, async () => {
      if (requests.length === ghosts.length) asked.resolve();
      await asked.promise;
      return { body: { device_keys: keys } };
    });
    const { homeserver } = ghostSide(t, url);
    const body = JSON.stringify({ device_keys: { "@eve:evil.test": [] } });
    let turn = 0;
    let isOver = false;
    const counting = (async () => {
      for (; !isOver; turn++) await setImmediate();
    })();
    const turns = await Promise.all(
      ghosts.map(async (one) => {
        const query = { id: "q", kind: "keys_query", body } as const;
        const outcome = await homeserver.devices.submit({ ghost: one, deviceId: "D" }, query);
        assert.equal(outcome.kind, "ok");
        return turn;
      }),
    );
    isOver = true;
    await counting;
    assert.equal(new Set(turns).size, ghosts.length);
  });

  it("a long answer that waits for one that does not come to its end is given up when the request is to end", async (t) => {
    const server = await httpServer(t);
    const keys = { "@eve:evil.test": { D: { keys: { "ed25519:D": "k".repeat(200_000) } } } };
    const text = JSON.stringify({ device_keys: keys });
    let written = 0;
    const isWritten = () => {
      written += 1;
    };
    server.answer = (_request, response) => {
      response.writeHead(200, { "content-type": "application/json" });
      if (server.requests.length === 1) response.write(text.slice(0, 150_000), isWritten);
      else response.end(text, isWritten);
    };
    const { homeserver } = ghostSide(t, server.url, { requestTimeoutMs: 1_000 });
    const body = JSON.stringify({ device_keys: { "@eve:evil.test": [] } });
    const query = { id: "q", kind: "keys_query", body } as const;
    const first = homeserver.devices.submit({ ghost: ghost(), deviceId: "D" }, query);
    while (written < 1) await setImmediate();
    const stop = new AbortController();
    const second = homeserver.devices.submit({ ghost: ghost(), deviceId: "D", signal: stop.signal }, query);
    while (written < 2) await setImmediate();
    for (let turn = 0; turn < 20; turn++) await setImmediate();
    stop.abort();
    assert.partialDeepStrictEqual(await Promise.race([first, second]), { kind: "retry", cause: "stopped" });
    assert.notEqual((await first).kind, "ok");
    const other = { ...query, body: body.replace("evil", "b") };
    assert.equal((await homeserver.devices.submit({ ghost: ghost(), deviceId: "D" }, other)).kind, "ok");
  });

  it("a request to a homeserver that is away is a retry", async (t) => {
    const { homeserver } = ghostSide(t, "http://127.0.0.1:9", { requestTimeoutMs: TIMEOUT_MS });
    assert.partialDeepStrictEqual(await homeserver.whoami(), { kind: "retry", cause: "network" });
  });

  it("a ghost is registered once, with one device that never changes, for concurrent callers", async (t) => {
    const server = await scriptedHomeserver(t);
    const side = ghostSide(t, server.url);
    const asked = await Promise.all(Array.from({ length: 10 }, () => side.ghosts.ensureGhost(ghost())));
    const deviceId = side.ledger.recorded.get(ghost())?.deviceId;
    assert.match(deviceId ?? "", /^[A-Z]{10}$/);
    for (const one of asked) assert.deepEqual(one, { kind: "ok", value: { ghost: ghost(), deviceId } });
    assert.deepEqual(
      server.requests.map(({ method, path }) => `${method} ${path}`),
      ["POST /_matrix/client/v3/register", `PUT /_matrix/client/v3/devices/${deviceId}`],
    );
    assert.deepEqual(server.requests[0]?.body, {
      type: "m.login.application_service",
      username: "agent_docs",
      inhibit_login: true,
    });
    assert.equal(server.requests[1]?.query.get("user_id"), ghost());
    assert.equal(server.requests[0]?.authorization, "Bearer as-token");

    server.script = ({ path }) =>
      path.endsWith("/register") ? { status: 400, body: { errcode: "M_USER_IN_USE" } } : {};
    const again = await side.restarted().ensureGhost(ghost());
    assert.deepEqual(
      again,
      { kind: "ok", value: { ghost: ghost(), deviceId } },
      "a new process: same device",
    );
  });

  it("a ghost that no agent has or had gets no account and no device, whoever acts as it [ENC-2] [DEL-10]", async (t) => {
    const server = await scriptedHomeserver(t);
    const side = ghostSide(t, server.url);
    const ghosts = new Ghosts({
      ...side,
      random: systemRandom,
      mayMake: async (who) => who !== ghost("bait"),
    });
    const left = await ghosts.acting(ghost("bait"), async () => assert.fail("it acts"));
    assert.partialDeepStrictEqual(left, { kind: "retry", cause: "ghost_refused" });
    assert.deepEqual([server.requests.length, side.ledger.recorded.size], [0, 0]);
    assert.equal((await ghosts.ensureGhost(ghost())).kind, "ok");
  });

  it("a ghost that could not be registered is registered at the next call", async (t) => {
    const server = await scriptedHomeserver(t, ({ path }) =>
      path.includes("/devices/") ? { status: 502 } : {},
    );
    const side = ghostSide(t, server.url);
    assert.equal((await side.ghosts.ensureGhost(ghost())).kind, "retry");
    server.script = () => ({});
    assert.equal((await side.ghosts.ensureGhost(ghost())).kind, "ok");
  });

  it("a display name is set once, and again when it changes or was refused", async (t) => {
    const server = await scriptedHomeserver(t);
    const side = ghostSide(t, server.url);
    const names = () =>
      server.requests.filter(({ path }) => path.endsWith("/displayname")).map(({ body }) => body);
    server.script = ({ path }) => (path.endsWith("/displayname") ? { status: 500 } : {});
    assert.equal((await side.ghosts.setProfile(ghost(), "Docs", "card")).kind, "retry");
    server.script = () => ({});
    assert.deepEqual(await side.ghosts.setProfile(ghost(), "Docs", "card"), { kind: "ok", value: "set" });
    const again = await side.restarted().setProfile(ghost(), "Docs", "card");
    assert.deepEqual(again, { kind: "ok", value: "unchanged" });
    const changed = await side.ghosts.setProfile(ghost(), "Docs 2", "operator");
    assert.deepEqual(changed, { kind: "ok", value: "set" });
    assert.deepEqual(names(), [{ displayname: "Docs" }, { displayname: "Docs" }, { displayname: "Docs 2" }]);
  });

  it("a card that changes its name all the time changes a ghost's once in an hour [AGT-4]", async (t) => {
    const server = await scriptedHomeserver(t);
    const side = ghostSide(t, server.url);
    for (let minute = 0; minute < 180; minute += 4) {
      const { kind } = await side.restarted().setProfile(ghost(), `Docs ${minute}`, "card");
      assert.equal(kind, "ok");
      await side.clock.advance(4 * 60_000);
    }
    const names = server.requests.filter(({ path }) => path.endsWith("/displayname")).map(({ body }) => body);
    assert.deepEqual(names, [
      { displayname: "Docs 0" },
      { displayname: "Docs 60" },
      { displayname: "Docs 120" },
    ]);
  });
});
