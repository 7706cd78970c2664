// A process is killed when a status message was sent, pinned or unpinned, and that is not recorded: another process goes on
// with the same message.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { FAILPOINTS, type FailpointName } from "../support/failpoints.ts";
import { scriptedHomeserver } from "../support/http-server.ts";
import { ACCEPTED, BUCKET, job, ledgerFixture, T0 } from "../support/ledger.ts";
import type { StatusProcess } from "../support/status-process.ts";
import { ROOT, run } from "../support/temporary.ts";

const PROGRAM = `${ROOT}tests/support/status-process.ts`;
/** After the lease of a dead process. */
const NEXT_MS = 61_000;

async function setUp(t: TestContext) {
  const fixture = await ledgerFixture(t);
  /** The room's events by the transaction ID of their request, as a homeserver keeps them. */
  const events = new Map<string, { readonly id: string; readonly body: Record<string, unknown> }>();
  let pinned: unknown = ["$older"];
  let pins = 0;
  const server = await scriptedHomeserver(t, ({ method, path, body }) => {
    if (path.includes("/send/")) {
      const known = events.get(path) ?? { id: `$s${events.size + 1}`, body: body as Record<string, unknown> };
      events.set(path, known);
      return { body: { event_id: known.id } };
    }
    if (!path.includes("m.room.pinned_events")) return { body: {} };
    if (method === "GET") return { body: { pinned } };
    pinned = (body as { pinned: unknown }).pinned;
    pins += 1;
    return { body: { event_id: "$pin" } };
  });
  await fixture.admit([job("one")]);
  const { lease } = await fixture.claimOne();
  await fixture.delegations.beginDispatch(lease, BUCKET, T0);
  await fixture.delegations.recordAccepted(lease, ACCEPTED, T0);
  const round = async (now: number, name?: FailpointName) => {
    const options: StatusProcess = {
      ...{ databaseUrl: fixture.url, homeserverUrl: server.url, now },
      ...(name !== undefined && { failpoint: FAILPOINTS[name] }),
    };
    const { signal, stderr } = await run(process.execPath, [PROGRAM, JSON.stringify(options)]);
    assert.deepEqual([signal, stderr], [name === undefined ? null : "SIGKILL", ""]);
  };
  const edited = () =>
    [...events.values()].map(({ body }) => (body["m.relates_to"] as { event_id?: string }).event_id);
  return { ...fixture, lease, round, edited, pinned: () => pinned, pins: () => pins };
}

describe("a status message whose process is killed", () => {
  it("at progress_accepted_pre_record stands in the room once, pinned once [DEL-6]", async (t) => {
    const { round, edited, pinned, pins, rows } = await setUp(t);
    await round(T0 + 6_000, "progress_accepted_pre_record");
    await round(T0 + 6_000 + NEXT_MS);
    assert.deepEqual(edited(), [undefined], "one message, no edit");
    assert.deepEqual([pinned(), pins()], [["$older", "$s1"], 1]);
    assert.deepEqual(await rows("SELECT event_id, pinned FROM bridge_statuses"), [
      { event_id: "$s1", pinned: true },
    ]);
  });

  it("at pin_accepted_pre_record is edited and unpinned once when the delegation has ended [DEL-6]", async (t) => {
    const { round, edited, pinned, pins, rows, delegations, lease } = await setUp(t);
    await round(T0 + 6_000);
    const failed = { state: "failed", stage: "follow", reason: "agent_failed" } as const;
    await delegations.finish(lease, failed, T0 + 7_000);
    await round(T0 + 60_000, "pin_accepted_pre_record");
    assert.deepEqual(pinned(), ["$older"]);
    await round(T0 + 60_000 + NEXT_MS);
    assert.deepEqual(edited(), [undefined, "$s1"]);
    assert.deepEqual([pinned(), pins()], [["$older"], 2]);
    assert.deepEqual(await rows("SELECT 1 FROM bridge_statuses"), []);
  });
});
