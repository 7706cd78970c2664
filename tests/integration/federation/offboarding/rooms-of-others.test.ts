// A third party's room that lets the counterparty in, with people of ours in it: nobody here may close it.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { visibleId } from "../../../../src/domain/identifiers.ts";
import { next } from "../../../../src/federation/offboarding/steps/next-or-run.ts";
import { sign } from "../../../../src/federation/offboarding/steps/sign-and-complete.ts";
import { waive } from "../../../../src/federation/offboarding/steps/waive-or-abort.ts";
import { openParties } from "../../../support/offboarding-steps.ts";

const THEIRS = "!harbour:d.test";

describe("rooms of third parties", () => {
  it("a third party's room that lets the counterparty in is out of reach, and can be waived by name [OFF-2]", async (t) => {
    const { a, closeStages } = await openParties(t);
    await closeStages(2);
    a.answers.set("make_join", { subject: THEIRS, verdict: "open", status: 200, reason: "accepted" });
    assert.equal((await next(a.context)).did, "not_proved");
    await assert.rejects(sign(a.context), /out_of_reach \[!harbour:d\.test\]: not_our_room/);
    await waive(a.context, THEIRS, { reason: "room_of_a_third_party" });
    assert.deepEqual((await sign(a.context)).signed, ["room"]);
  });

  it("one with a long ID, which is named by a digest, is out of reach as well [OFF-2]", async (t) => {
    const { a, closeStages } = await openParties(t);
    await closeStages(2);
    const subject = visibleId(`!${"é".repeat(120)}:d.test`);
    a.answers.set("make_join", { subject, verdict: "open", status: 200, reason: "accepted" });
    assert.equal((await next(a.context)).did, "not_proved");
    await waive(a.context, subject, { reason: "room_of_a_third_party" });
    assert.deepEqual((await sign(a.context)).signed, ["room"]);
  });

  it("a room of our own that lets the counterparty in cannot be waived [OFF-2]", async (t) => {
    const { a, closeStages } = await openParties(t);
    await closeStages(2);
    a.answers.set("make_join", { verdict: "open", status: 200, reason: "accepted" });
    assert.equal((await next(a.context)).did, "not_proved");
    await assert.rejects(
      sign(a.context),
      /kept_out_of_rooms \[make_join\]: make_join on !room:a\.test: open/,
    );
    await assert.rejects(waive(a.context, "!room:a.test", { reason: "no_matter" }), /nothing out of reach/);
  });
});
