import assert from "node:assert/strict";
import { test } from "node:test";
import { DrawbridgeError } from "../../../src/domain/errors.ts";
import { wayBackFrom, wayBackNote, withWayBack } from "../../../src/lab/way-back.ts";

const REFUSED = new DrawbridgeError("homeserver_refused", "org-b refuses PUT: 403", { mend: "See the log." });
const mendOf = (error: unknown) => (error instanceof DrawbridgeError ? error.mend : undefined);

test("a question that is refused while a partner is contained names the command that restores it", () => {
  const closed = wayBackFrom("night", [{ at: "org-a", partner: "org-b" }], ["org-a"]);
  assert.ok(closed !== undefined);
  assert.equal(
    wayBackNote(closed),
    "org-b is contained at org-a: questions from one to the other are refused. To take it back:\n  ./task fed:break-glass restore org-b --org org-a --name night",
  );
  const error = withWayBack("night", REFUSED, closed);
  assert.ok(error instanceof DrawbridgeError);
  assert.equal(error.code, "homeserver_refused");
  assert.equal(error.message, "the question was refused, as is said above");
  assert.equal(error.mend, undefined, "it stands in the note");
});

test("a question that is refused after a removal names the re-admission", () => {
  const closed = wayBackFrom("default", [], ["org-a", "org-b"]);
  assert.deepEqual(closed?.facts, ["org-b is removed at org-a", "org-a is removed at org-b"]);
  assert.deepEqual(closed?.commands, ["./task fed:readmit"]);
  const silent = new DrawbridgeError("agent_unavailable", "no answer within 60 s", { mend: "See the log." });
  const error = withWayBack("default", silent, closed);
  assert.ok(error instanceof DrawbridgeError);
  assert.equal(error.message, "no answer within 60 s");
  assert.equal(error.mend, undefined);
});

test("a question that is refused where nothing is closed names what brings people back after a restore", () => {
  assert.match(
    mendOf(withWayBack("default", REFUSED, wayBackFrom("default", [], []))) ?? "",
    /^\.\/task fed:up /,
  );
  const silent = new DrawbridgeError("agent_unavailable", "no answer", { mend: "See the log." });
  assert.equal(withWayBack("default", silent, undefined), silent);
});
