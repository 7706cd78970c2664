import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { closedNote, closedPartnersIn, explainRefusal } from "../../../../lab/status/closed-partners.ts";
import { DrawbridgeError } from "../../../../src/domain/errors.ts";

const REFUSED = new DrawbridgeError("homeserver_refused", "org-b refuses PUT: 403", { hint: "See the log." });
const hintOf = (error: unknown) => (error instanceof DrawbridgeError ? error.hint : undefined);

const partner = (name: string) => ({ partner: name, serverName: `${name}.test` });
const OPEN = { containment: [], removed: [] };

describe("closed partners", () => {
  it("a question that is refused while a partner is contained names the command that restores it", () => {
    const closed = closedPartnersIn("night", [
      ["org-a", { containment: [partner("org-b")], removed: [partner("org-b")] }],
      ["org-b", OPEN],
    ]);
    assert.ok(closed !== undefined);
    assert.equal(
      closedNote(closed),
      "org-b is contained at org-a: questions from one to the other are refused. To admit it again:\n  ./task fed:break-glass restore org-b --org org-a --name night",
    );
    const error = explainRefusal("night", REFUSED, closed);
    assert.ok(error instanceof DrawbridgeError);
    assert.equal(error.code, "homeserver_refused");
    assert.equal(error.message, "the question was refused, as is said above");
    assert.equal(error.hint, undefined, "it stands in the note");
  });

  it("a question that is refused after a removal names the re-admission", () => {
    const closed = closedPartnersIn("default", [
      ["org-a", { containment: [], removed: [partner("org-b")] }],
      ["org-b", { containment: [], removed: [partner("org-a")] }],
    ]);
    assert.deepEqual(closed?.facts, ["org-b is removed at org-a", "org-a is removed at org-b"]);
    assert.deepEqual(closed?.commands, ["./task fed:readmit"]);
    const silent = new DrawbridgeError("agent_unavailable", "no answer within 60 s", {
      hint: "See the log.",
    });
    const error = explainRefusal("default", silent, closed);
    assert.ok(error instanceof DrawbridgeError);
    assert.equal(error.message, "no answer within 60 s");
    assert.equal(error.hint, undefined);
  });

  it("a question that is refused where nothing is closed names the task that brings people back after a restore", () => {
    assert.match(
      hintOf(explainRefusal("default", REFUSED, closedPartnersIn("default", [["org-a", OPEN]]))) ?? "",
      /^\.\/task fed:up /,
    );
    const silent = new DrawbridgeError("agent_unavailable", "no answer", { hint: "See the log." });
    assert.equal(explainRefusal("default", silent, undefined), silent);
  });
});
