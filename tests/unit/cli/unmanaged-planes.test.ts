// What the commands say about planes that the organisation does not manage, and those that have nothing to be closed.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { stateOf } from "../../../src/cli/federation/contain-or-restore.ts";
import { endLine } from "../../../src/cli/lib/offboarding.ts";
import { shownWords } from "../../../src/cli/offboarding/next.ts";
import { openWords } from "../../../src/cli/readmission/next.ts";
import type { PlaneResult } from "../../../src/federation/containment/contain-or-restore.ts";
import { limitsOf } from "../../../src/federation/containment/contain-or-restore.ts";

const plane = (changes: Partial<PlaneResult>): PlaneResult => ({
  ...{ plane: "gateway", verdict: "met", done: true, outcome: "in_force", reason: null },
  ...{ triedAt: null, at: null, repairedAt: null, outOfReach: [], conditions: [], evidence: [] },
  ...changes,
});

describe("words about planes", () => {
  it("a plane that is not managed here is neither closed nor still to be closed [ADO-1]", () => {
    assert.match(stateOf("contain", plane({ verdict: "unmanaged", done: false })), /^not managed here/);
    assert.match(stateOf("contain", plane({ verdict: "not_met", done: false })), /^NOT CLOSED YET/);
    assert.equal(stateOf("contain", plane({})), "closed");
  });

  it("a plane on which there is nothing for the partner is not called closed or in force [ADO-1]", () => {
    const nothing = { plane: "rooms", verdict: "not_applicable" } as const;
    assert.match(stateOf("contain", plane(nothing)), /^nothing to close: no room is shared/);
    assert.match(stateOf("restore", plane(nothing)), /^nothing to open: no room is shared/);
  });

  it("what a containment cannot do speaks of the gateway as it was seen, and as unmanaged where it is [ADO-1]", () => {
    const said = (...gateway: [] | [number | "unmanaged"]) =>
      limitsOf("contain", "b.test", ...gateway).join("\n");
    assert.match(said(0), /until 1970-01-01T00:05:00.000Z at the latest; the gateway refuses them already/);
    assert.match(said(), /300 s after the gateway plane is closed; the gateway refuses them from then on/);
    assert.match(said("unmanaged"), /not managed here: its client gets tokens/);
    assert.doesNotMatch(said("unmanaged"), /refuses|refused/);
  });

  it("a stage is called shown only for conditions that are managed here [ADO-1]", () => {
    const words = (...verdicts: ("met" | "unmanaged" | "not_applicable")[]) =>
      shownWords([
        { condition: "in_force", verdict: verdicts[0] ?? "met" },
        ...verdicts.slice(1).map((verdict) => ({ condition: "enforced", verdict })),
      ]);
    assert.equal(words("met", "met", "not_applicable"), "closed, and shown");
    assert.equal(words("met", "not_applicable"), "nothing to close, and that is shown");
    assert.equal(words("met", "unmanaged"), "closed and shown as far as it is managed here");
    assert.equal(words("unmanaged", "unmanaged"), "not managed here, so not shown");
  });

  it("a removal in which a part is not managed ends, and its record is not called complete [ADO-1]", () => {
    assert.match(endLine({ isWhole: true }, "record.json"), /^COMPLETE; the record verifies: record\.json$/);
    assert.match(endLine({ isWhole: false }, "record.json"), /^ENDED; .* INCOMPLETE: .*: record\.json$/);
  });

  it("a re-admission calls no plane open that is not managed here [ADO-1] [RDM-1]", () => {
    const words = (...verdicts: ("met" | "unmanaged" | "not_applicable")[]) =>
      openWords(
        verdicts.map((verdict, index) => ({ condition: index === 0 ? "in_force" : "other", verdict })),
      );
    assert.equal(words("met", "met", "not_applicable"), "is open");
    assert.equal(words("met", "not_applicable"), "has nothing of this partner's to be open");
    assert.equal(words("met", "unmanaged"), "is open as far as it is managed here");
    assert.match(words("unmanaged", "unmanaged"), /^is not managed here/);
  });
});
