// The status message of a question that takes long, on a real ledger, against a scripted homeserver.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import type { Lease } from "../../../../src/bridge/ledger/leases.ts";
import { Ghosts } from "../../../../src/bridge/matrix/ghosts.ts";
import { plainRoomsOnly } from "../../../../src/bridge/matrix/send-once.ts";
import { createStatusQueue } from "../../../../src/bridge/status-messages/send-status-messages.ts";
import { EN } from "../../../../src/bridge/texts/en.ts";
import { systemRandom } from "../../../../src/domain/clock.ts";
import { eventually } from "../../../support/encrypted-bridge.ts";
import { ghostSide } from "../../../support/ghosts.ts";
import { type SlowScript, scriptedHomeserver } from "../../../support/http-server.ts";
import { ACCEPTED, job, ledgerFixture, room, T0 } from "../../../support/ledger.ts";
import { recordedLog } from "../../../support/recorded-log.ts";

const LATER = T0 + 6_000;

async function setUp(t: TestContext) {
  const fixture = await ledgerFixture(t);
  let pinned: unknown = ["$older"];
  const sent = new Map<string, string>();
  let isAway = false;
  let losesPins = false;
  let isMuted = false;
  let refusesPins = false;
  let hanging: { reached: () => void; goneOn: Promise<void> } | undefined;
  const slowEnds = Promise.withResolvers<void>();
  const script: SlowScript = async ({ method, path, body }) => {
    if (path.includes(encodeURIComponent("!slow"))) await slowEnds.promise;
    if (isAway) return { status: 503, body: {} };
    if (path.includes("/send/")) {
      if (isMuted) return { status: 403, body: { errcode: "M_FORBIDDEN" } };
      const event = sent.get(path) ?? `$s${sent.size + 1}`;
      sent.set(path, event);
      return { body: { event_id: event } };
    }
    if (path.includes("m.room.encryption")) return { status: 404, body: { errcode: "M_NOT_FOUND" } };
    if (!path.includes("m.room.pinned_events")) return { body: {} };
    if (method === "GET") {
      const [read, here] = [pinned, hanging];
      hanging = undefined;
      here?.reached();
      await here?.goneOn;
      return { body: { pinned: read } };
    }
    if (refusesPins) return { status: 403, body: { errcode: "M_FORBIDDEN" } };
    pinned = (body as { pinned: unknown }).pinned;
    if (losesPins) return { status: 504, body: {} };
    return { body: { event_id: "$pin" } };
  };
  const server = await scriptedHomeserver(t, script);
  const { homeserver, clock } = ghostSide(t, server.url, { now: T0 });
  const { ledger } = fixture;
  const { log } = recordedLog();
  const ghosts = new Ghosts({ homeserver, ledger, clock, random: systemRandom });
  const process = () =>
    createStatusQueue({
      ...{ ledger, homeserver, ghosts, clock, log, textsOf: () => EN },
      encryptEvent: plainRoomsOnly({ homeserver, ledger: ledger.memberships }),
      onError: (error) => {
        throw error;
      },
    });
  const [queue, other] = [process(), process()];
  const bodies = () =>
    server.requests
      .filter(({ path }) => path.includes("/send/"))
      .map(({ body }) => body as Record<string, unknown>);
  const at = async (now: number, by = queue) => {
    await clock.advance(now - clock.now());
    await by.round();
  };
  const set = (now: { isAway?: boolean; losesPins?: boolean; isMuted?: boolean; refusesPins?: boolean }) => {
    ({ isAway = false, losesPins = false, isMuted = false, refusesPins = false } = now);
  };
  /** The next process that reads what is pinned hangs there, until it is told to go on. */
  const hang = () => {
    const [reached, goneOn] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    hanging = { reached: reached.resolve, goneOn: goneOn.promise };
    return { reached: reached.promise, goOn: goneOn.resolve };
  };
  /** Looks as often as the queue does, until then. */
  const until = async (end: number, stepMs: number) => {
    for (let now = clock.now() + stepMs; now <= end; now += stepMs) await at(now);
  };
  const of = { server, clock, other, at, until, set, hang, bodies, pinned: () => pinned };
  return { ...fixture, ...of, slowEnds };
}

const FAILED = { state: "failed", stage: "follow", reason: "agent_failed" } as const;
const WORKING = /^The agent is working on this question\./;

describe("status messages", () => {
  it("a question that waits says so after five seconds, and why, once [DEL-6]", async (t) => {
    const { admit, at, bodies } = await setUp(t);
    await admit([job("one"), job("two")]);
    await at(T0 + 4_999);
    assert.deepEqual(bodies(), [], "nothing of what is quick");
    await at(T0 + 5_000);
    await at(T0 + 60_000);
    const said = bodies().map(({ body }) => String(body).split("\n")[0]);
    assert.deepEqual(said.toSorted(), [
      "This question is waiting. Other questions in this room come first.",
      "This question is waiting. The agent has not taken it yet. I keep trying.",
    ]);
    for (const body of bodies()) {
      assert.deepEqual(body["m.mentions"], {});
      assert.equal(body["msgtype"], "m.notice");
    }
  });

  it("a long task has one message, pinned, edited with what the agent says, and unpinned at the end [DEL-6]", async (t) => {
    const { admit, at, bodies, pinned, claimOne, delegations, rows } = await setUp(t);
    await admit([job("one")]);
    const { lease } = await claimOne();
    await delegations.recordAccepted(
      lease,
      { taskId: "t1", contextId: undefined, agentVersion: undefined },
      T0,
    );
    await delegations.recordReport(lease, "Reading <b>1</b> of 3\n@room");
    await at(LATER);
    assert.deepEqual(pinned(), ["$older", "$s1"]);
    const [first] = bodies();
    assert.match(String(first?.["body"]), WORKING);
    assert.match(
      String(first?.["formatted_body"]),
      /<blockquote>\n<p>Reading &lt;b&gt;1&lt;\/b&gt; of 3 @\u2060room<\/p>/,
    );
    await at(LATER + 3_000);
    assert.equal(bodies().length, 1, "nothing new, nothing said");

    await delegations.recordReport(lease, "Reading 2 of 3");
    await at(LATER + 5_999);
    assert.equal(bodies().length, 1, "not sooner than three seconds after the last look");
    await at(LATER + 6_000);
    const edit = bodies()[1];
    assert.deepEqual(edit?.["m.relates_to"], { rel_type: "m.replace", event_id: "$s1" });
    assert.match(JSON.stringify(edit?.["m.new_content"]), /> Reading 2 of 3\\n/);

    await delegations.finish(
      lease,
      { state: "failed", stage: "follow", reason: "agent_failed" },
      LATER + 7_000,
    );
    await at(LATER + 9_000);
    assert.match(JSON.stringify(bodies()[2]?.["m.new_content"]), /ended without an answer/);
    assert.deepEqual(pinned(), ["$older"], "what others have pinned stays");
    await at(LATER + 12_000);
    assert.deepEqual(await rows("SELECT * FROM bridge_statuses"), []);
    assert.deepEqual(await rows("SELECT purpose, event_id FROM bridge_sends"), [
      { purpose: "progress", event_id: "$s1" },
    ]);
    await at(LATER + 60_000);
    assert.equal(bodies().length, 3);
  });

  it("a slow room takes a quarter of the places, and a question of another room says meanwhile that it waits [DEL-6] [DEL-10]", async (t) => {
    const { admit, at, server, slowEnds } = await setUp(t);
    await admit(Array.from({ length: 20 }, (_, index) => job(`s${index}`, { room: room("slow") })));
    await admit([job("one")]);
    const shown = at(LATER);
    const requests = (part: string) => server.requests.filter(({ path }) => path.includes(part)).length;
    const told = async () => requests(`${encodeURIComponent("!r")}/send/`) === 1 || undefined;
    await eventually("the other room is told", told, 5_000);
    assert.equal(requests(encodeURIComponent("!slow")), 4);
    slowEnds.resolve();
    await shown;
  });

  it("a task that ends before its message was due has none, and nothing of its report is kept [DEL-6]", async (t) => {
    const { admit, at, bodies, claimOne, delegations, rows } = await setUp(t);
    await admit([job("one")]);
    const { lease } = await claimOne();
    await delegations.recordReport(lease, "soon");
    await delegations.finish(
      lease,
      { state: "failed", stage: "dispatch", reason: "agent_failed" },
      T0 + 1_000,
    );
    await at(LATER);
    assert.deepEqual(bodies(), []);
    assert.deepEqual(await rows("SELECT * FROM bridge_statuses"), []);
  });

  it("where the ghost may not pin, the message is shown all the same [DEL-6]", async (t) => {
    const { admit, at, set, bodies, pinned } = await setUp(t);
    set({ refusesPins: true });
    await admit([job("one")]);
    await at(LATER);
    await at(LATER + 60_000);
    assert.equal(bodies().length, 1);
    assert.deepEqual(pinned(), ["$older"]);
  });

  it("where the ghost may not unpin any more, the end is shown, and no further try is made [DEL-6]", async (t) => {
    const { admit, at, set, bodies, pinned, claimOne, delegations, rows } = await setUp(t);
    await admit([job("one")]);
    const { lease } = await claimOne();
    await at(LATER);
    set({ refusesPins: true });
    await delegations.finish(lease, FAILED, LATER + 1_000);
    await at(LATER + 3_000);
    assert.match(JSON.stringify(bodies().at(-1)?.["m.new_content"]), /ended without an answer/);
    assert.deepEqual([pinned(), await rows("SELECT 1 FROM bridge_statuses")], [["$older", "$s1"], []]);
  });

  it("after a kill between sending and recording the message has the same transaction ID [DEL-6]", async (t) => {
    const { admit, at, server, rows } = await setUp(t);
    await admit([job("one")]);
    await at(LATER);
    await rows("UPDATE bridge_statuses SET event_id = NULL, shown = NULL, fence = fence + 1, due_at = $1", [
      new Date(LATER),
    ]);
    await at(LATER + 1);
    const sent = server.requests.filter(({ path }) => path.includes("/send/")).map(({ path }) => path);
    assert.equal(sent.length, 2);
    assert.equal(new Set(sent).size, 1);
  });

  it("a message that a process sent and pinned before it died says the end and is unpinned [DEL-6]", async (t) => {
    const { admit, at, bodies, pinned, claimOne, delegations, rows } = await setUp(t);
    await admit([job("one")]);
    const { lease } = await claimOne();
    await at(LATER);
    assert.deepEqual(pinned(), ["$older", "$s1"]);
    // As the row was before the process recorded what it had done.
    await rows(
      "UPDATE bridge_statuses SET event_id = NULL, shown = NULL, pinned = false, fence = fence + 1, due_at = $1",
      [new Date(LATER)],
    );
    await rows("DELETE FROM bridge_sends");
    await delegations.finish(lease, FAILED, LATER);
    await at(LATER + 1);
    await at(LATER + 10_000);
    await at(LATER + 13_000);
    assert.match(JSON.stringify(bodies().at(-1)?.["m.new_content"]), /ended without an answer/);
    assert.deepEqual([pinned(), await rows("SELECT 1 FROM bridge_statuses")], [["$older"], []]);
  });

  it("a message that a process pins after another one has shown its end and unpinned it is unpinned again [DEL-6]", async (t) => {
    const { admit, other, at, hang, bodies, pinned, claimOne, delegations, rows } = await setUp(t);
    await admit([job("one")]);
    const { lease } = await claimOne();
    const { reached, goOn } = hang();
    const hung = at(LATER);
    await reached;
    await rows("UPDATE bridge_statuses SET holder = NULL, fence = fence + 1, due_at = $1", [new Date(LATER)]);
    await delegations.finish(lease, FAILED, LATER + 1_000);
    await at(LATER + 1_000, other);
    await at(LATER + 5_000, other);
    await at(LATER + 8_000, other);
    assert.deepEqual([pinned(), await rows("SELECT 1 FROM bridge_statuses")], [["$older"], []]);

    goOn();
    await hung;
    assert.deepEqual(pinned(), ["$older", "$s1"]);
    await at(LATER + 12_000);
    await at(LATER + 15_000);
    assert.match(JSON.stringify(bodies().at(-1)?.["m.new_content"]), /ended without an answer/);
    assert.deepEqual([pinned(), await rows("SELECT 1 FROM bridge_statuses")], [["$older"], []]);
  });

  it("an edit that a process sent and did not record does not stand in for the end [DEL-6]", async (t) => {
    const { admit, at, server, bodies, claimOne, delegations, rows } = await setUp(t);
    await admit([job("one")]);
    const { lease } = await claimOne();
    await at(LATER);
    const [before] = await rows("SELECT shown FROM bridge_statuses");
    await delegations.recordAccepted(
      lease,
      { taskId: "t1", contextId: undefined, agentVersion: undefined },
      LATER,
    );
    await delegations.recordReport(lease, "Reading");
    await at(LATER + 3_000);
    await rows("UPDATE bridge_statuses SET shown = $1, fence = fence + 1, due_at = $2", [
      before?.["shown"],
      new Date(LATER),
    ]);
    await delegations.finish(lease, FAILED, LATER + 3_001);
    await at(LATER + 3_002);
    assert.match(JSON.stringify(bodies().at(-1)?.["m.new_content"]), /ended without an answer/);
    const sent = server.requests.filter(({ path }) => path.includes("/send/")).map(({ path }) => path);
    assert.deepEqual([sent.length, new Set(sent).size], [3, 3], "each has a transaction ID of its own");
  });

  it("what the agent says does not go into a room that became encrypted where ghosts take no part [DEL-6] [ENC-7]", async (t) => {
    const { admit, at, bodies, claimOne, delegations, rows } = await setUp(t);
    await admit([job("one")]);
    const { lease } = await claimOne();
    await at(LATER);
    await rows("UPDATE bridge_rooms SET encrypted = true");
    await delegations.recordAccepted(
      lease,
      { taskId: "t1", contextId: undefined, agentVersion: undefined },
      LATER,
    );
    await delegations.recordReport(lease, "canary");
    await at(LATER + 10_000);
    assert.doesNotMatch(JSON.stringify(bodies()), /canary/);
  });

  it("in a room that refuses it, it is tried at growing intervals while its question is open [DEL-6]", async (t) => {
    const { admit, at, until, set, server, claimOne, delegations, rows } = await setUp(t);
    await admit([job("one")]);
    const { lease } = await claimOne();
    const tries = () => server.requests.filter(({ path }) => path.includes("/send/")).length;
    set({ isMuted: true });
    for (let polls = 0; polls < 5; polls++) await at(LATER);
    assert.equal(tries(), 1);
    await until(LATER + 600_000, 1_000);
    assert.ok(tries() <= 16, `${tries()} tries in ten minutes`);
    await delegations.finish(lease, FAILED, LATER + 600_000);
    await until(LATER + 700_000, 10_000);
    assert.deepEqual(await rows("SELECT 1 FROM bridge_statuses"), []);
  });

  it("an outage of an hour leaves no message pinned, whether its delegation ended before or meanwhile [DEL-6]", async (t) => {
    const { admit, at, until, set, bodies, pinned, claimOne, delegations, rows } = await setUp(t);
    await admit([job("one")]);
    const { lease } = await claimOne();
    await at(LATER);
    set({ isAway: true });
    await delegations.finish(lease, FAILED, LATER + 1_000);
    await until(LATER + 3_600_000, 61_000);
    assert.deepEqual(pinned(), ["$older", "$s1"]);
    set({});
    await until(LATER + 3_800_000, 61_000);
    assert.match(JSON.stringify(bodies().at(-1)?.["m.new_content"]), /ended without an answer/);
    assert.deepEqual([pinned(), await rows("SELECT 1 FROM bridge_statuses")], [["$older"], []]);
  });

  it("is unpinned at the end though the response to the pin was lost, and after an unpin that failed [DEL-6]", async (t) => {
    const { admit, at, set, pinned, claimOne, delegations, rows } = await setUp(t);
    await admit([job("one")]);
    const { lease } = await claimOne();
    set({ losesPins: true });
    await at(LATER);
    assert.deepEqual(pinned(), ["$older", "$s1"]);
    await delegations.finish(lease, FAILED, LATER + 1_000);
    await at(LATER + 4_000);
    await at(LATER + 70_000);
    set({});
    await at(LATER + 140_000);
    await at(LATER + 210_000);
    assert.deepEqual([pinned(), await rows("SELECT 1 FROM bridge_statuses")], [["$older"], []]);
  });

  it("several messages of one room are pinned and unpinned side by side, and none stays pinned [DEL-6]", async (t) => {
    const { admit, at, pinned, claimOne, delegations, rows } = await setUp(t);
    const leases: Lease[] = [];
    await admit(["one", "two", "three"].map((name) => job(name)));
    for (const taskId of ["t1", "t2", "t3"]) {
      const { lease } = await claimOne();
      leases.push(lease);
      await delegations.recordAccepted(lease, { ...ACCEPTED, taskId }, T0);
    }
    await at(LATER);
    assert.deepEqual(pinned(), ["$older", "$s1", "$s2", "$s3"]);
    for (const lease of leases) await delegations.finish(lease, FAILED, LATER + 1_000);
    await at(LATER + 4_000);
    await at(LATER + 8_000);
    assert.deepEqual([pinned(), await rows("SELECT 1 FROM bridge_statuses")], [["$older"], []]);
  });

  it("two messages of one room that two processes unpin at once are both unpinned [DEL-6] [DEL-9]", async (t) => {
    const { admit, other, at, hang, pinned, claimOne, delegations, rows } = await setUp(t);
    await admit([job("one"), job("two")]);
    const leases: Lease[] = [];
    for (const taskId of ["t1", "t2"]) {
      const { lease } = await claimOne();
      leases.push(lease);
      await delegations.recordAccepted(lease, { ...ACCEPTED, taskId }, T0);
    }
    await at(LATER);
    assert.deepEqual(pinned(), ["$older", "$s1", "$s2"]);
    for (const lease of leases) await delegations.finish(lease, FAILED, LATER + 1_000);
    const due = "UPDATE bridge_statuses SET due_at = $2 WHERE delegation_id = $1";
    await rows(due, [leases[1]?.delegationId, new Date(LATER + 5_000)]);
    const { reached, goOn } = hang();
    const hung = at(LATER + 4_000, other);
    await reached;
    await at(LATER + 5_000);
    goOn();
    await hung;
    for (const now of [10_000, 15_000, 20_000]) await at(LATER + now);
    assert.deepEqual([pinned(), await rows("SELECT 1 FROM bridge_statuses")], [["$older"], []]);
  });
});
