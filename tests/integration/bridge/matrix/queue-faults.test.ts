// Memberships and notices on a real ledger, against a homeserver that is ill.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { pino } from "pino";
import { createMembershipQueue } from "../../../../src/bridge/matrix/answer-invitations.ts";
import { Ghosts } from "../../../../src/bridge/matrix/ghosts.ts";
import { createNoticeQueue } from "../../../../src/bridge/notices/send-notices.ts";
import { systemRandom } from "../../../../src/domain/clock.ts";
import { DrawbridgeError } from "../../../../src/domain/errors.ts";
import type { TransactionId, UserId } from "../../../../src/domain/identifiers.ts";
import { testDirectory } from "../../../support/agents.ts";
import { ghostSide, noticeTexts } from "../../../support/ghosts.ts";
import { type Script, scriptedHomeserver } from "../../../support/http-server.ts";
import { event, ghost, ledgerFixture, room, T0 } from "../../../support/ledger.ts";

async function fixture(t: TestContext, script: Script, requestTimeoutMs = 3_000) {
  const { ledger, admit, rows } = await ledgerFixture(t);
  const server = await scriptedHomeserver(t, script);
  const side = ghostSide(t, server.url, { now: T0, requestTimeoutMs });
  const { homeserver, clock } = side;
  const logged: string[] = [];
  const log = pino({ level: "debug" }, { write: (line: string) => logged.push(line) });
  const ghosts = new Ghosts({ homeserver, ledger, clock, random: systemRandom });
  const common = { admit, ledger, homeserver, ghosts, agents: testDirectory({ docs: {} }), clock, log };
  await admit([], {
    events: [{ event: event("question"), room: room("r") }],
    roomState: [
      {
        kind: "ghost",
        room: room("r"),
        ghost: ghost(),
        membership: "invite",
        inviter: "@alice:a.test" as UserId,
        direct: false,
        hasAgent: true,
      },
    ],
    about: { rooms: [room("r")], related: [] },
    derive: () => ({
      delegations: [],
      answers: [],
      cancels: [],
      envelopes: [],
      notices: [
        {
          kind: "agent_directory",
          room: room("r"),
          ghost: ghost(),
          source: event("question"),
          asker: "@alice:a.test" as UserId,
          threadRoot: undefined,
        },
      ],
    }),
  });
  const memberships = createMembershipQueue(common);
  const notices = createNoticeQueue({ ...common, readsEncrypted: true, ...noticeTexts });
  /** The bridge after its process was replaced: it makes sure of its ghosts anew. */
  const restarted = () =>
    createMembershipQueue({
      ...common,
      ghosts: new Ghosts({ homeserver, ledger, clock, random: systemRandom }),
    });
  return { server, clock, rows, logged, memberships, notices, common, restarted };
}

const nobodyJoined: Script = ({ path }) => (path.endsWith("/joined_members") ? { body: { joined: {} } } : {});

const calls = (requests: readonly { path: string }[], part: string) =>
  requests.filter(({ path }) => path.includes(part)).length;

describe("memberships and notices with a faulty homeserver", () => {
  it("a failing join is retried with growing waits, and the invitation refused in the end", async (t) => {
    const { server, clock, rows, memberships } = await fixture(t, (request) =>
      request.path.includes("/join/")
        ? { status: 502, body: { errcode: "M_UNKNOWN" } }
        : nobodyJoined(request),
    );
    const waits: number[] = [];
    for (let round = 0; round < 40 && calls(server.requests, "/leave") === 0; round++) {
      await memberships.round();
      await memberships.round();
      const [row] = await rows("SELECT due_at FROM bridge_ghost_rooms");
      const due = row?.["due_at"];
      if (!(due instanceof Date)) break;
      waits.push(due.getTime() - clock.now());
      await clock.advance(due.getTime() - clock.now());
    }
    assert.deepEqual(waits.slice(0, 4), [2_000, 4_000, 8_000, 16_000]);
    assert.equal(Math.max(...waits), 600_000);
    assert.equal(calls(server.requests, "/join/"), 31, "one try a due time, never a hot loop");
    assert.deepEqual(await rows("SELECT membership, task FROM bridge_ghost_rooms"), [
      { membership: "leave", task: null },
    ]);
  });

  it("an invitation is answered while those of any number of servers that no agent allows hang [DEL-10]", async (t) => {
    const script: Script = (request) => {
      if (request.path.includes("/join/")) return { body: { room_id: room("r") } };
      return request.path.endsWith("/leave") ? "hang" : nobodyJoined(request);
    };
    const { server, memberships, common } = await fixture(t, script, 500);
    for (let index = 0; index < 40; index++) {
      const inviter = `@eve:host${index}.evil.test` as UserId;
      const invited = {
        ghost: ghost(),
        membership: "invite",
        inviter,
        direct: false,
        hasAgent: true,
      } as const;
      const state = [{ kind: "ghost", room: room(`evil ${index}`), ...invited }] as const;
      await common.admit([], { roomState: state, receivedAt: T0 - 60_000 });
    }
    await memberships.round();
    assert.equal(calls(server.requests, "/join/"), 1);
    assert.equal(calls(server.requests, "/leave"), 4);
  });

  it("no request is made before the time that the homeserver asked to wait", async (t) => {
    const busy = {
      status: 429,
      body: { errcode: "M_LIMIT_EXCEEDED", retry_after_ms: 90_000, error: "secret words" },
    };
    const { clock, rows, logged, memberships, notices } = await fixture(t, ({ path }) =>
      path.includes("/join/") || path.includes("/send/") ? busy : {},
    );
    await memberships.round();
    await notices.round();
    const [row] = await rows(
      "SELECT g.due_at AS join, n.due_at AS notice FROM bridge_ghost_rooms g, bridge_notices n",
    );
    assert.deepEqual(row, { join: new Date(clock.now() + 90_000), notice: new Date(clock.now() + 90_000) });
    assert.equal(logged.length, 2);
    assert.doesNotMatch(logged.join(""), /secret/);
  });

  it("a notice waits for one time-out of a hanging homeserver, and is sent later under the same ID", async (t) => {
    const { server, clock, rows, notices } = await fixture(t, ({ path }) =>
      path.includes("/send/") ? "hang" : {},
    );
    await notices.round();
    server.script = () => ({ body: { event_id: "$said" } });
    await clock.advance(60_000);
    await notices.round();
    await notices.round();
    const paths = server.requests.filter(({ path }) => path.includes("/send/")).map(({ path }) => path);
    assert.equal(paths.length, 2);
    assert.equal(new Set(paths).size, 1);
    assert.deepEqual(await rows("SELECT state, event_id FROM bridge_notices"), [
      { state: "sent", event_id: "$said" },
    ]);
  });

  it("a notice that cannot be sent for a week is given up [NOT-1]", async (t) => {
    const { notices, clock, rows } = await fixture(t, () => ({ status: 503, body: {} }));
    const states = async () => (await rows("SELECT state FROM bridge_notices")).map(({ state }) => state);
    for (let days = 0; days < 7; days++) {
      await notices.round();
      await clock.advance(24 * 60 * 60_000);
    }
    assert.deepEqual(await states(), ["pending"]);
    await notices.round();
    assert.deepEqual(await states(), ["dropped"]);
  });

  it("a ghost that was removed before it read its room counts as out", async (t) => {
    const { server, rows, memberships } = await fixture(t, () => ({ body: { room_id: "!r" } }));
    await memberships.round();
    assert.deepEqual(await rows("SELECT membership, task FROM bridge_ghost_rooms"), [
      { membership: "join", task: "settle" },
    ]);
    server.script = () => ({ status: 403, body: { errcode: "M_FORBIDDEN" } });
    await memberships.round();
    assert.deepEqual(await rows("SELECT membership, task FROM bridge_ghost_rooms"), [
      { membership: "leave", task: null },
    ]);
  });

  it("a ghost counts as in a room only when it is listed there, even if another ghost of the bridge can read it", async (t) => {
    const { server, rows, memberships, common } = await fixture(t, () => ({ body: { room_id: "!r" } }));
    await memberships.round();
    const listed: Script = ({ path }) =>
      path.endsWith("/joined_members")
        ? { body: { joined: Object.fromEntries(members.map((one) => [one, {}])) } }
        : { status: 404, body: { errcode: "M_NOT_FOUND" } };
    let members = ["@alice:a.test", ghost("other")];
    server.script = listed;
    await memberships.round();
    const now = await rows("SELECT membership, task FROM bridge_ghost_rooms");
    assert.deepEqual(now, [{ membership: "leave", task: null }]);
    // Told to have left, by an event that was held up: it asks, and is still there.
    await common.ledger.memberships.catchupRoomState(ghost(), undefined, T0);
    assert.deepEqual(await rows("SELECT task FROM bridge_ghost_rooms"), [{ task: null }], "it is in no room");
    members = ["@alice:a.test", ghost()];
    const { admit } = common;
    const state = {
      kind: "ghost",
      room: room("r"),
      ghost: ghost(),
      inviter: undefined,
      direct: false,
      hasAgent: true,
    } as const;
    await admit([], { roomState: [{ ...state, membership: "join" }] });
    await admit([], { roomState: [{ ...state, membership: "leave" }] });
    await memberships.round();
    assert.deepEqual(await rows("SELECT membership, task FROM bridge_ghost_rooms"), [
      { membership: "join", task: null },
    ]);
  });

  it("a ghost that is in the room does not leave it for an invitation that is refused", async (t) => {
    const { server, clock, rows, memberships, common } = await fixture(t, ({ path }) =>
      path.endsWith("/joined_members") ? { body: { joined: { [ghost()]: {}, "@alice:a.test": {} } } } : {},
    );
    common.agents.current = async () => ({ byGhost: new Map(), partnerGhosts: [] }) as never;
    for (let second = 0; second <= 40; second++) {
      await memberships.round();
      await clock.advance(1_000);
    }
    assert.equal(calls(server.requests, "/leave"), 0);
    assert.equal((await rows("SELECT membership FROM bridge_ghost_rooms"))[0]?.["membership"], "join");
  });

  it("a ghost that is in the room and may not read it counts as in it, and tries again", async (t) => {
    const { server, clock, rows, memberships } = await fixture(t, () => ({ body: { room_id: "!r" } }));
    await memberships.round();
    server.script = ({ path }) =>
      path.endsWith("/joined_members")
        ? { body: { joined: { [ghost()]: {}, "@alice:a.test": {} } } }
        : { status: 403, body: { errcode: "M_FORBIDDEN" } };
    await memberships.round();
    assert.deepEqual(await rows("SELECT membership, task, due_at FROM bridge_ghost_rooms"), [
      { membership: "join", task: "settle", due_at: new Date(clock.now() + 60_000) },
    ]);
  });

  const NOT_YET = [
    ["to a room that the homeserver does not know whole yet", 404, "M_UNKNOWN"],
    ["that has come ahead of the room's events, to a room that the homeserver is in,", 403, "M_FORBIDDEN"],
  ] as const;
  for (const [which, status, errcode] of NOT_YET) {
    it(`an invitation ${which} is accepted as soon as it can be`, async (t) => {
      const { server, clock, rows, memberships } = await fixture(t, ({ path }) =>
        path.includes("/join/") ? { status, body: { errcode } } : {},
      );
      await memberships.round();
      assert.deepEqual(await rows("SELECT membership, task FROM bridge_ghost_rooms"), [
        { membership: "invite", task: "answer_invite" },
      ]);
      server.script = ({ path }) => (path.includes("/join/") ? { body: { room_id: room("r") } } : {});
      await clock.advance(2_000);
      await memberships.round();
      assert.deepEqual(await rows("SELECT membership FROM bridge_ghost_rooms"), [{ membership: "join" }]);
      assert.equal(calls(server.requests, "/leave"), 0);
    });
  }

  const REFUSED = [
    ["not invited, or banned", 403, "M_FORBIDDEN", 5],
    ["a version that the homeserver does not know", 400, "M_UNSUPPORTED_ROOM_VERSION", 1],
  ] as const;
  for (const [why, status, errcode, joins] of REFUSED) {
    it(`an invitation that stays refused (${why}) is given up within half a minute`, async (t) => {
      const { server, clock, rows, memberships } = await fixture(t, (request) =>
        request.path.includes("/join/") ? { status, body: { errcode } } : nobodyJoined(request),
      );
      for (let second = 0; second <= 30; second++) {
        await memberships.round();
        await clock.advance(1_000);
      }
      assert.equal(calls(server.requests, "/join/"), joins);
      assert.deepEqual(await rows("SELECT membership, task FROM bridge_ghost_rooms"), [
        { membership: "leave", task: null },
      ]);
    });
  }

  const REFUSALS: readonly (readonly [string, Script])[] = [
    [
      "registering it",
      ({ path }) => (path.endsWith("/register") ? { status: 400, body: { errcode: "M_EXCLUSIVE" } } : {}),
    ],
    [
      "its device",
      ({ path }) => (path.includes("/devices/") ? { status: 403, body: { errcode: "M_FORBIDDEN" } } : {}),
    ],
  ];
  for (const [what, refusal] of REFUSALS) {
    it(`an invitation and a membership are kept when the homeserver refuses the ghost itself (${what})`, async (t) => {
      const { server, clock, rows, memberships, restarted } = await fixture(t, refusal);
      const state = () => rows("SELECT membership, task, due_at FROM bridge_ghost_rooms");
      const inAMinute = () => new Date(clock.now() + 60_000);
      await memberships.round();
      assert.deepEqual(await state(), [{ membership: "invite", task: "answer_invite", due_at: inAMinute() }]);

      await clock.advance(60_000);
      server.script = ({ path }) => (path.includes("/join/") ? { body: { room_id: room("r") } } : {});
      await memberships.round();
      server.script = refusal;
      await restarted().round();
      assert.deepEqual(await state(), [{ membership: "join", task: "settle", due_at: inAMinute() }]);
      assert.equal(calls(server.requests, "/leave"), 0);
    });
  }

  for (const hanging of ["/register", "/devices/", "/join/", "/send/"]) {
    it(`a drain does not wait for a homeserver that hangs at ${hanging}, and unfinished work is due at once`, async (t) => {
      const asked = Promise.withResolvers<void>();
      const script: Script = ({ path }) => {
        if (!path.includes(hanging)) return {};
        asked.resolve();
        return "hang";
      };
      const { server, clock, rows, memberships, notices } = await fixture(t, script, 120_000);
      const worker = hanging === "/send/" ? notices : memberships;
      worker.start();
      await asked.promise;
      const requests = server.requests.length;
      await worker.drain();
      assert.equal(server.requests.length, requests, "no request is begun");
      const table = worker === notices ? "bridge_notices" : "bridge_ghost_rooms";
      assert.deepEqual(await rows(`SELECT due_at FROM ${table}`), [{ due_at: new Date(clock.now()) }]);
    });
  }

  it("a server that invites a ghost to very many rooms does not delay the invitations of others", async (t) => {
    const joined = Promise.withResolvers<void>();
    let flood = 0;
    const script: Script = ({ path }) => {
      if (path.includes("/join/")) joined.resolve();
      if (!path.includes(encodeURIComponent("!flood"))) return { body: { room_id: room("r") } };
      flood += 1;
      if (flood > 4) joined.reject(new Error("more than a quarter of what is done at a time"));
      return "hang";
    };
    const { rows, memberships } = await fixture(t, script, 120_000);
    await rows(
      `INSERT INTO bridge_ghost_rooms (room_id, ghost_mxid, membership, inviter, task, due_at)
       SELECT '!flood' || n, $1, 'invite', '@mallory:flood.test', 'answer_invite', $2 FROM generate_series(1, 500) n`,
      [ghost(), new Date(T0 - 60_000)],
    );
    memberships.start();
    await joined.promise;
    await memberships.drain();
  });

  it("a slow room takes a quarter of the places for notices, and another room is told meanwhile [DEL-10] [NOT-1]", async (t) => {
    const isSlow = (path: string) => path.includes(encodeURIComponent("!slow"));
    const script: Script = ({ path }) => (isSlow(path) ? "hang" : { body: { event_id: "$said" } });
    const { server, rows, notices } = await fixture(t, script, 500);
    await rows(
      `INSERT INTO bridge_notices (marker, kind, room_id, ghost_mxid, transaction_id, created_at, due_at)
       SELECT 'm' || n, 'delegation_failed', '!slow', $1, 't' || n, $2, $2 FROM generate_series(1, 40) n`,
      [ghost(), new Date(T0 - 60_000)],
    );
    await notices.round();
    const sent = server.requests.filter(({ path }) => path.includes("/send/"));
    assert.equal(sent.filter(({ path }) => isSlow(path)).length, 4);
    assert.equal(sent.length, 5);
  });

  it("an invitation of a ghost that no agent has any more is declined after half a minute", async (t) => {
    const { server, clock, rows, common } = await fixture(t, nobodyJoined);
    const memberships = createMembershipQueue({ ...common, agents: testDirectory({}) });
    for (let tries = 0; tries < 4; tries++) {
      await memberships.round();
      await clock.advance(2_000 * 2 ** tries);
    }
    assert.equal(calls(server.requests, "/leave"), 0);
    await memberships.round();
    assert.deepEqual(await rows("SELECT membership FROM bridge_ghost_rooms"), [{ membership: "leave" }]);
    assert.deepEqual([calls(server.requests, "/leave"), calls(server.requests, "/join/")], [1, 0]);
  });

  it("an invitation is answered by the agent that this process reads of a moment later than another", async (t) => {
    const { server, clock, common } = await fixture(t, () => ({ body: { room_id: "!r" } }));
    await createMembershipQueue({ ...common, agents: testDirectory({}) }).round();
    await clock.advance(2_000);
    await createMembershipQueue(common).round();
    assert.deepEqual([calls(server.requests, "/leave"), calls(server.requests, "/join/")], [0, 1]);
  });

  it("an invitation of a ghost whose account is refused for good ends after as many tries as a join", async (t) => {
    const { clock, rows, common } = await fixture(t, ({ path }) =>
      path.includes("/register") ? { status: 400, body: { errcode: "M_EXCLUSIVE" } } : { body: {} },
    );
    const memberships = createMembershipQueue({ ...common, agents: testDirectory({}) });
    const tasks = () => rows("SELECT membership, task FROM bridge_ghost_rooms");
    for (let tries = 0; tries < 30; tries++) {
      await memberships.round();
      await clock.advance(60 * 60_000);
    }
    assert.deepEqual(await tasks(), [{ membership: "invite", task: "answer_invite" }]);
    await memberships.round();
    assert.deepEqual(await tasks(), [{ membership: "leave", task: null }]);
  });

  it("a round that is stopped before its work begins makes no request", async (t) => {
    const { server, memberships, notices } = await fixture(t, () => ({}));
    for (const queue of [memberships, notices]) {
      await queue.drain();
      await queue.round();
    }
    assert.equal(server.requests.length, 0);
  });

  it("the list of agents names those alone that the person who asked for it may ask [NOT-1]", async (t) => {
    const { server, common } = await fixture(t, () => ({ body: { event_id: "$said" } }));
    const agents = testDirectory({
      docs: {},
      secret: { senders: ["@bob:a.test"] },
      partner: { servers: ["b.test"], senders: ["*:b.test"] },
    });
    await createNoticeQueue({ readsEncrypted: true, ...noticeTexts, ...common, agents }).round();
    const said = server.requests.find(({ path }) => path.includes("/send/"));
    assert.deepEqual(new Set(JSON.stringify(said?.body).match(/@agent_\w+/g)), new Set(["@agent_docs"]));
  });

  it("a notice that another process holds is left to it, and the others of the round are sent", async (t) => {
    const { server, common, logged } = await fixture(t, ({ path }) =>
      path.includes("/send/") ? { body: { event_id: "$said" } } : {},
    );
    const [notice] = await common.ledger.notices.claim({ limit: 1, now: T0, leaseUntil: T0 });
    assert.ok(notice !== undefined);
    const others = ["lost", "held"].map((id) => ({ ...notice, transactionId: id as TransactionId }));
    const sent: string[] = [];
    const worker = createNoticeQueue({
      readsEncrypted: true,
      ...noticeTexts,
      ...common,
      ledger: {
        ...common.ledger,
        notices: {
          ...common.ledger.notices,
          claim: async () => others,
          recordAttempt: async ({ transactionId }) => {
            if (transactionId === "lost") throw new DrawbridgeError("lease_lost", "another has it");
          },
          recordSent: async ({ transactionId }) => void sent.push(transactionId),
        },
      },
    });
    assert.equal(await worker.round(), false);
    assert.deepEqual(sent, ["held"]);
    assert.equal(calls(server.requests, "/send/"), 1);
    assert.equal(logged.length, 1);
  });
});
