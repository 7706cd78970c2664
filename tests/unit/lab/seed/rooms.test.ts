import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { returnLines } from "../../../../lab/seed/rooms.ts";

const room = (roomId: string, alias: string) => ({
  ...{ roomId, alias, encrypted: false, createdBy: "org-a" as const },
});
const A = room("!a", "#shared:a");
const B = room("!b", "#shared:b");
const ALICE = "@alice:b";

describe("returns", () => {
  it("who has accepted an invitation after a restore is told in a line, with the rooms", () => {
    const joins = [A, B].map((one) => ({ user: ALICE, room: one }));
    assert.deepEqual(returnLines([A, B], [A, B], joins), [
      "@alice:b has accepted, and is back in #shared:a, #shared:b",
    ]);
  });

  it("a room that was given up is told as opened anew, and joining it is no return", () => {
    const next = room("!next", B.alias);
    assert.deepEqual(returnLines([A, B], [A, next], [{ user: ALICE, room: next }]), [
      "opened anew, as it was given up: #shared:b",
    ]);
  });

  it("a room that is in the place of another is told with who has replaced it", () => {
    const next = { ...room("!next", B.alias), replacedBy: "org-b" as const };
    assert.deepEqual(returnLines([A, B], [A, next], []), [
      "#shared:b is !next now, by which org-b has replaced it",
    ]);
  });

  it("nothing is told where nobody came back, nor when the rooms are first made", () => {
    assert.deepEqual(returnLines([A, B], [A, B], []), []);
    assert.deepEqual(returnLines([], [A, B], [{ user: ALICE, room: A }]), []);
  });
});
