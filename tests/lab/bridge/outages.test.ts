// Every server that the bridge depends on goes away under it, and comes back: what was asked is answered
// once, or ends as documented with a notice. One lab for all of it; org B's bridge has the usual deadline and
// waits, org A's has a short one and gives up.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, describe, it } from "node:test";
import { synapseDatabaseName } from "../../../lab/configuration/databases.ts";
import type { CompleteOrganisation } from "../../../lab/organisations.ts";
import { assertNoTrace, type Question, Questions } from "../../support/lab-questions.ts";
import { eventually, type Fixes, LabSession, type UnitName } from "../../support/lab-session.ts";

const DISPATCH_DEADLINE_MS = 6_000;
/** The waits are at least 0.5, 0.5, 1, 2, 4, 8 and 16 s: no more attempts fit into half a minute. */
const ATTEMPTS_MAX = 7;

const lab = await LabSession.start();
after(() => lab.end());
const questions = new Questions(lab);
await questions.plant();
await Promise.all([
  lab.configure("org-a", { limits: { dispatchDeadline: `${DISPATCH_DEADLINE_MS}ms` } }),
  // A homeserver that hangs is given up sooner, and what a killed bridge held is taken up again sooner.
  lab.configure("org-b", { homeserver: { requestTimeout: "2s" }, limits: { lease: "5s" } }),
]);

/** Puts a transaction to a bridge as its homeserver does; resolves to the status. */
async function transact(organisation: CompleteOrganisation, id: string): Promise<number> {
  const token = readFileSync(
    lab.lab.paths.organisation(organisation).bridgeSecret("hs-token"),
    "utf8",
  ).trim();
  const { bridge } = lab.status.organisations[organisation];
  const response = await fetch(`${bridge?.url}/_matrix/app/v1/transactions/${id}`, {
    method: "PUT",
    headers: { authorization: `Bearer ${token}` },
    body: JSON.stringify({ events: [] }),
  });
  await response.body?.cancel();
  return response.status;
}

describe("outages of the bridge's neighbours", () => {
  it("transactions get 503 while the database is down, and every question is answered afterwards [INT-5]", async (t) => {
    const rooms = await questions.rooms(2, "org-b");
    const bridge = await lab.processOf("org-b/bridge");
    const refused = { outcome: "not_recorded" };
    const before = await lab.metric("org-b", "drawbridge_transactions_total", refused);
    const logged = readFileSync(lab.lab.paths.organisation("org-b").bridgeLog, "utf8").length;
    const open = await lab.closeDatabase(t, "org-b");
    assert.equal(await transact("org-b", "by-hand"), 503);

    const asked = await questions.ask([...rooms, ...rooms], "org-b");
    await eventually("Synapse's transaction is refused", async () => {
      return (await lab.metric("org-b", "drawbridge_transactions_total", refused)) > before + 1;
    });
    const held = "SELECT count(*)::int AS count FROM application_services_txns";
    const synapse = synapseDatabaseName("org-b");
    assert.ok(((await lab.administer<{ count: number }>(held, [], synapse))[0]?.count ?? 0) > 0);
    const warnings = readFileSync(lab.lab.paths.organisation("org-b").bridgeLog, "utf8").slice(logged);
    assert.ok(warnings.split("\n").length < 100, "the bridge asks for its database in a loop");

    await open();
    await questions.answeredOnce(asked);
    assert.deepEqual(await lab.processOf("org-b/bridge"), bridge);
    await eventually("Synapse holds nothing back", async () => {
      return (await lab.administer<{ count: number }>(held, [], synapse))[0]?.count === 0;
    });
  });

  it("waiting questions survive a restart of PostgreSQL, and the bridge continues by itself [DEL-3]", async (t) => {
    const rooms = await questions.rooms(3, "org-b");
    const bridges = [await lab.processOf("org-a/bridge"), await lab.processOf("org-b/bridge")];
    await lab.stop(t, "org-a/gateway");
    const asked = await questions.ask([...rooms, ...rooms], "org-b");
    await questions.until("all are recorded", asked, ({ state }) => state !== "completed");
    await lab.unit("restart", "postgres");
    await lab.start("org-a/gateway");
    const later = await questions.ask(rooms, "org-b");
    await questions.answeredOnce([...asked, ...later]);
    assert.deepEqual([await lab.processOf("org-a/bridge"), await lab.processOf("org-b/bridge")], bridges);
  });

  it("a reply arrives once when Synapse was stopped before it could be sent [DEL-4]", async (t) => {
    const rooms = await questions.rooms(3, "org-b");
    const bridge = await lab.processOf("org-b/bridge");
    const thaw = await lab.freeze(t, "org-a/agent");
    const asked = await questions.ask(rooms, "org-b");
    await questions.until("all are at the agent", asked, (row) => row.a2a_attempted);
    await lab.stop(t, "org-b/homeserver");
    thaw();
    await questions.until(
      "all replies wait",
      asked,
      (row) => row.state === "reply_pending" && row.attempts > 0,
    );
    const pending = await lab.rows<{ content: Buffer }>(
      "org-b",
      "SELECT content FROM bridge_sends WHERE state = 'pending'",
    );
    assert.equal(pending.length, asked.length);
    for (const { content } of pending) assert.ok(!content.includes(questions.stem), "a reply waits unsealed");

    await lab.start("org-b/homeserver");
    await questions.answeredOnce(asked);
    assert.deepEqual(await lab.processOf("org-b/bridge"), bridge);
    await questions.answeredOnce(await questions.ask(rooms, "org-b"));
  });

  it("a reply that is repeated because Synapse hung arrives once [DEL-4]", async (t) => {
    const rooms = await questions.rooms(3, "org-b");
    const thawAgent = await lab.freeze(t, "org-a/agent");
    const asked = await questions.ask(rooms, "org-b");
    await questions.until("all are at the agent", asked, (row) => row.a2a_attempted);
    const thawHomeserver = await lab.freeze(t, "org-b/homeserver");
    thawAgent();
    // Each attempt's request lies in the homeserver's sockets until it is thawed.
    await questions.until("each reply was sent twice", asked, (row) => row.attempts > 1);
    thawHomeserver();
    await questions.answeredOnce(asked);
  });

  it("a bridge that was killed while the agent works continues each question as the same task [DEL-7]", async (t) => {
    const rooms = await questions.rooms(3, "org-b");
    const { restarts } = await lab.unitStatus("org-b/bridge");
    const thaw = await lab.freeze(t, "org-a/agent");
    const asked = await questions.ask([...rooms, ...rooms], "org-b");
    await eventually("the first of each room is at the agent", async () => {
      const rows = await questions.rowsOf(asked);
      return rows.filter((row) => row?.a2a_attempted).length === rooms.length;
    });
    await lab.unit("kill", "org-b/bridge");
    await eventually("the supervisor starts it again", async () => {
      const unit = await lab.unitStatus("org-b/bridge");
      return unit.restarts > restarts && unit.state === "ready";
    });
    thaw();
    await questions.answeredOnce(asked);
  });

  /** Both bridges ask while these are away: A's gives up at its deadline, B's waits. */
  async function askDuring(t: Fixes, units: UnitName[]) {
    const [waiting, ending] = [await questions.rooms(3, "org-b"), await questions.rooms(3, "org-a")];
    await lab.stop(t, ...units);
    return { waiting, ending };
  }

  /** Nothing was tried in a loop. */
  async function assertPatient(asked: readonly Question[]): Promise<void> {
    for (const row of await questions.rowsOf(asked)) {
      assert.ok(
        (row?.attempts ?? 0) >= 1 && (row?.attempts ?? 0) <= ATTEMPTS_MAX,
        `${row?.attempts} attempts`,
      );
    }
  }

  it("questions wait, or end token_refused with a notice at their deadline, while the issuers are away [DEL-8]", async (t) => {
    const rooms = await askDuring(t, ["org-a/issuer", "org-b/issuer"]);
    // Tokens are kept in memory alone.
    await Promise.all([lab.unit("restart", "org-a/bridge"), lab.unit("restart", "org-b/bridge")]);
    const waiting = await questions.ask(rooms.waiting, "org-b");
    const ending = await questions.ask(rooms.ending, "org-a");
    const ended = await questions.refusedWithNotice(ending, /could not get an answer.*got no access to the/);
    for (const row of ended) {
      assert.deepEqual(
        [row.state, row.terminal_stage, row.terminal_reason],
        ["failed", "dispatch", "token_refused"],
      );
      assert.equal(row.a2a_attempted, false);
    }
    await assertPatient([...waiting, ...ending]);
    const tokens = await lab.metric("org-a", "drawbridge_token_requests_total");
    assert.ok(tokens >= 1 && tokens <= ATTEMPTS_MAX * ending.length, `${tokens} requests to the issuer`);

    await lab.start("org-a/issuer", "org-b/issuer");
    await questions.answeredOnce(waiting);
  });

  it("questions wait, or end agent_unavailable with a notice at their deadline, while the gateways are away [DEL-7]", async (t) => {
    const rooms = await askDuring(t, ["org-a/gateway", "org-b/gateway"]);
    const waiting = await questions.ask(rooms.waiting, "org-b");
    const ending = await questions.ask(rooms.ending, "org-a");
    const ended = await questions.refusedWithNotice(ending, /could not get an answer.*could not be reached/);
    for (const row of ended) {
      assert.deepEqual(
        [row.state, row.terminal_stage, row.terminal_reason],
        ["failed", "dispatch", "agent_unavailable"],
      );
    }
    await assertPatient([...waiting, ...ending]);
    await lab.start("org-a/gateway", "org-b/gateway");
    await questions.answeredOnce(waiting);
  });

  it("questions wait, or end at their deadline once the agent is known to have none, while the agents are away [DEL-7]", async (t) => {
    const rooms = await askDuring(t, ["org-a/agent", "org-b/agent"]);
    const accesses = () =>
      readFileSync(lab.lab.paths.organisation("org-b").accessLog, "utf8").split("\n").length;
    const before = accesses();
    const waiting = await questions.ask(rooms.waiting, "org-b");
    const ending = await questions.ask(rooms.ending, "org-a");
    await eventually("the deadline has passed", async () => {
      const [row] = await lab.rows<{ passed: boolean }>(
        "org-a",
        `SELECT bool_and(now() > admitted_at + make_interval(secs => $2)) AS passed
       FROM bridge_delegations WHERE matrix_event_id = ANY ($1)`,
        [ending.map(({ event }) => event), DISPATCH_DEADLINE_MS / 1_000],
      );
      return row?.passed === true;
    });
    await assertPatient([...waiting, ...ending]);
    assert.ok(accesses() - before <= ATTEMPTS_MAX * ending.length, "the gateway is called in a loop");
    await lab.start("org-a/agent", "org-b/agent");
    const ended = await questions.refusedWithNotice(
      ending,
      /could not get an answer.*did not take it in time/,
    );
    for (const [index, row] of ended.entries()) {
      assert.deepEqual([row.state, row.terminal_reason], ["failed", "dispatch_deadline_exceeded"]);
      const question = ending[index];
      assert.ok(question !== undefined);
      assert.deepEqual(questions.tasksOf(question, row), []);
    }
    await questions.answeredOnce(waiting);
  });

  it("no question has a second answer after all outages [DEL-4]", async () => {
    const rows = await questions.ended(questions.asked);
    for (const [index, row] of rows.entries()) {
      const question = questions.asked[index];
      assert.ok(question !== undefined);
      assert.equal((await questions.repliesTo(question)).length, row.terminal_reason === "answered" ? 1 : 0);
    }
  });

  it("outages leave no trace of questions and answers [AUD-2]", async () => {
    await assertNoTrace(lab, questions);
  });
});
