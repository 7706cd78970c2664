import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { changedRoomLines } from "../../../../lab/seed/rooms.ts";

const room = (roomId: string, alias: string) => ({
  ...{ roomId, alias, encrypted: false, createdBy: "org-a" as const },
});
const A = room("!a", "#shared:a");
const B = room("!b", "#shared:b");
const ALICE = "@alice:b";

describe("lines about changed rooms", () => {
  it("a line names a person who has accepted an invitation, with the rooms", () => {
    const joins = [A, B].map((one) => ({ user: ALICE, room: one }));
    assert.deepEqual(changedRoomLines([A, B], [A, B], joins), [
      "@alice:b has accepted, and is back in #shared:a, #shared:b",
    ]);
  });

  it("a room that was given up is listed as opened again, and joining it is no return", () => {
    const next = room("!next", B.alias);
    assert.deepEqual(changedRoomLines([A, B], [A, next], [{ user: ALICE, room: next }]), [
      "opened again, because the old room was given up: #shared:b",
    ]);
  });

  it("a replacement is listed with the organisation that has replaced the room", () => {
    const next = { ...room("!next", B.alias), replacedBy: "org-b" as const };
    assert.deepEqual(changedRoomLines([A, B], [A, next], []), [
      "#shared:b now leads to !next, with which org-b has replaced it",
    ]);
  });

  it("there is no line when nobody came back, nor when the rooms are first made", () => {
    assert.deepEqual(changedRoomLines([A, B], [A, B], []), []);
    assert.deepEqual(changedRoomLines([], [A, B], [{ user: ALICE, room: A }]), []);
  });
});
