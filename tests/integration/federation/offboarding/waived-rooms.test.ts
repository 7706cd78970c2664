// What a waiver excuses: what could not be observed, and a room that the reconciler names as one it could not close.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { systemClock } from "../../../../src/domain/clock.ts";
import { visibleId } from "../../../../src/domain/identifiers.ts";
import { trustOf } from "../../../../src/federation/offboarding/run/context.ts";
import { findRun, readStatements } from "../../../../src/federation/offboarding/run/run-file.ts";
import { next } from "../../../../src/federation/offboarding/steps/next-or-run.ts";
import { sign } from "../../../../src/federation/offboarding/steps/sign-and-complete.ts";
import { statusOf } from "../../../../src/federation/offboarding/steps/status.ts";
import { waive } from "../../../../src/federation/offboarding/steps/waive-or-abort.ts";
import { runPass } from "../../../../src/federation/reconcile/pass.ts";
import { statementIn } from "../../../../src/records/sign/export-and-import.ts";
import type { Side } from "../../../support/offboarding.ts";
import { B } from "../../../support/offboarding-planes.ts";
import { assertOneEnd, driveToEnd, openParties } from "../../../support/offboarding-steps.ts";

const ROOM = "!room:a.test";

/** The counterparty's people are in the room, and its server is let in. */
function observedOpen({ answers }: Side): void {
  answers.set("room_members", { verdict: "open", references: ["present=3"] });
  answers.set("room_enforcement", { verdict: "open" });
  answers.set("make_join", { verdict: "open", layer: "homeserver", status: 200, reason: "let_in" });
}

describe("a room that is waived by name", () => {
  it("a room of which one thing is unknown cannot be signed while others were observed open [OFF-2]", async (t) => {
    const { a, closeStages } = await openParties(t);
    await closeStages(2);
    observedOpen(a);
    a.answers.set("room_acl", { verdict: "unknown", status: null, reason: "timed_out" });
    assert.equal((await next(a.context)).did, "not_proved");
    await waive(a.context, ROOM, { reason: "timeout_accepted" });
    await assert.rejects(sign(a.context), (error: Error) => {
      for (const probe of ["room_enforcement", "room_members", "make_join"]) {
        assert.ok(error.message.includes(`${probe} on ${ROOM}: open`), error.message);
      }
      return true;
    });
  });

  it("a room of which one thing is unknown is signed by a waiver when nothing was observed open [OFF-2]", async (t) => {
    const { a, closeStages } = await openParties(t);
    await closeStages(2);
    a.answers.set("room_acl", { verdict: "unknown", status: null, reason: "timed_out" });
    assert.equal((await next(a.context)).did, "not_proved");
    await waive(a.context, ROOM, { reason: "timeout_accepted" });
    assert.deepEqual((await sign(a.context)).signed, ["room"]);
  });

  it("a room that is named by a digest, because its ID is too long, can be waived as any other [OFF-2]", async (t) => {
    const { a, closeStages } = await openParties(t);
    await closeStages(2);
    const subject = visibleId(`!${"é".repeat(120)}:b.test`);
    for (const probe of ["room_acl", "room_enforcement", "room_members"]) {
      a.answers.set(probe, { subject, verdict: "unknown", status: null, reason: "not_observed" });
    }
    assert.equal((await next(a.context)).did, "not_proved");
    await waive(a.context, subject, { reason: "room_is_lost" });
    assert.deepEqual((await sign(a.context)).signed, ["room"]);
  });

  it("a waiver does not cover another reason that is found for the same room when it is signed [OFF-2]", async (t) => {
    let aheadMs = 0;
    const clock = { ...systemClock, now: () => systemClock.now() + aheadMs };
    const { a, closeStages } = await openParties(t, { clock });
    await closeStages(2);
    a.answers.set("room_acl", { verdict: "unknown", status: null, reason: "timed_out" });
    assert.equal((await next(a.context)).did, "not_proved");
    await waive(a.context, ROOM, { reason: "timeout_accepted" });
    observedOpen(a);
    a.answers.set("room_acl", { verdict: "open" });
    a.outOfReach.push({ partner: B, subject: ROOM, reason: "no_power", hint: "Ask its administrator." });
    await runPass(a.federation, { plane: "rooms", force: true, again: true });
    aheadMs = 61_000;
    await assert.rejects(sign(a.context), /no_power/);
    await waive(a.context, ROOM, { reason: "closed_by_its_owner", by: "a-owner" });
    assert.deepEqual((await sign(a.context)).signed, ["room"]);
    const [envelope] = readStatements(findRun(a.federation.state)).envelopes.slice(-1);
    const { predicate } = statementIn(envelope ?? assert.fail()) ?? assert.fail();
    assert.deepEqual(predicate.out_of_reach, [
      { subject: ROOM, reason: "no_power", waived_by: "a-owner", waiver: "closed_by_its_owner" },
    ]);
  });

  it("a waiver of one thing that is unknown of a room does not cover another one that is found when it is signed [OFF-2]", async (t) => {
    let aheadMs = 0;
    const clock = { ...systemClock, now: () => systemClock.now() + aheadMs };
    const { a, closeStages } = await openParties(t, { clock });
    await closeStages(2);
    a.answers.set("room_members", { verdict: "unknown", reason: "unreadable_member" });
    assert.equal((await next(a.context)).did, "not_proved");
    await waive(a.context, ROOM, { reason: "known_member" });
    a.answers.set("room_acl", { verdict: "unknown", status: null, reason: "timed_out" });
    aheadMs = 61_000;
    await assert.rejects(sign(a.context), /out_of_reach \[!room:a\.test\]: timed_out/);
    await waive(a.context, ROOM, { reason: "timeout_accepted" });
    assert.deepEqual((await sign(a.context)).signed, ["room"]);
    const [envelope] = readStatements(findRun(a.federation.state)).envelopes.slice(-1);
    const { predicate } = statementIn(envelope ?? assert.fail()) ?? assert.fail();
    const waived = predicate.out_of_reach.map(({ reason, waiver }) => `${reason}: ${waiver}`).sort();
    assert.deepEqual(waived, ["timed_out: timeout_accepted", "unreadable_member: known_member"]);
  });

  it("what the other organisation has waived is shown before it is countersigned, and stays in the status [OFF-2]", async (t) => {
    const { a, b, pass, closeStages } = await openParties(t);
    await closeStages(2);
    a.answers.set("room_acl", { verdict: "unknown", status: null, reason: "timed_out" });
    await next(a.context);
    await waive(a.context, ROOM, { reason: "timeout_accepted", by: "a-owner" });
    await sign(a.context);
    await pass(a, b);
    const waivedAt = () => statusOf(findRun(b.federation.state), trustOf(b.context.config)).waivedByOther;
    const [waived, ...others] = waivedAt();
    assert.deepEqual(others, []);
    const { reason = "" } = waived ?? {};
    const said = { subject: ROOM, waived_by: "a-owner", waiver: "timeout_accepted", reason };
    assert.deepEqual(waived, { place: "a.test/room", ...said, countersigned: false });
    const lines: string[] = [];
    await next(b.context);
    const { countersigned } = await sign({ ...b.context, say: (line) => lines.push(line) });
    assert.deepEqual(countersigned, ["room"]);
    assert.deepEqual(
      lines.filter((line) => line.startsWith("to be countersigned")),
      [
        `to be countersigned: a.test/room: ${ROOM}: out of reach (${reason}); waived by a-owner: timeout_accepted`,
      ],
    );
    assert.deepEqual(waivedAt(), [{ place: "a.test/room", ...said, countersigned: true }]);
  });

  it("a room that the reconciler could not close is waived by name, and the record holds what was observed open [OFF-2]", async (t) => {
    const { directory, a, b, closeStages } = await openParties(t);
    await closeStages(2);
    observedOpen(a);
    a.answers.set("room_acl", { verdict: "open" });
    a.outOfReach.push({ partner: B, subject: ROOM, reason: "no_power", hint: "Ask its administrator." });
    assert.equal((await next(a.context)).did, "not_proved");
    await waive(a.context, ROOM, { reason: "closed_by_its_owner" });
    assert.deepEqual((await sign(a.context)).signed, ["room"]);
    await driveToEnd(directory, [a, b]);
    await assertOneEnd(directory, [a, b]);
    const { run } = findRun(a.federation.state);
    const file = join(a.federation.state.path, "offboarding", run, "record.json");
    const { evidence } = JSON.parse(readFileSync(file, "utf8")) as {
      evidence: { probe: string; verdict: string; subject: string }[];
    };
    const open = evidence.filter(({ subject, verdict }) => subject === ROOM && verdict === "open");
    assert.deepEqual(
      new Set(open.map(({ probe }) => probe)),
      new Set(["room_acl", "room_enforcement", "room_members", "make_join"]),
    );
  });
});
