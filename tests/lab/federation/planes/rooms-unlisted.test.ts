// Plane 2 on real homeservers of which one keeps no list of its rooms: Synapse makes it from statistics, which lag behind, and
// which an operator may have switched off.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { after, before, describe, it } from "node:test";
import { type RoomsScene, roomsScene } from "../../../support/rooms-deployment.ts";

describe("the rooms plane of a homeserver that lists no rooms", () => {
  let scene: RoomsScene;

  before(async () => {
    scene = await roomsScene();
    const { a } = scene.servers;
    await a.stop();
    writeFileSync(a.includeFile, "stats: {enabled: false}\n");
    await a.start();
  });
  after(() => scene?.dispose());

  it("closes or names every room that users of ours are in, and shows none as absent [PLN-2]", async () => {
    const { alice, bob, root, plane, servers, intent, closingB, sharedRoom } = scene;
    const theirs = await sharedRoom(bob, [alice]);
    const ours = await sharedRoom(alice, [bob]);
    const { body } = await root.request("GET", "/../../../_synapse/admin/v1/rooms");
    assert.equal(body["total_rooms"], 0, "the homeserver's own list has none of them");
    const outcome = await plane.apply(intent(closingB()));
    assert.equal(outcome.state, "incomplete");
    const named = "outOfReach" in outcome ? (outcome.outOfReach ?? []) : [];
    assert.deepEqual([...new Set(named.map(({ subject }) => subject))], [theirs], "its creator is bob");
    const member = `/rooms/${encodeURIComponent(ours)}/state/m.room.member/${encodeURIComponent(bob.userId)}`;
    assert.equal((await alice.call("GET", member))["membership"], "ban");
    const evidence = await plane.probe(intent(closingB()), servers.b.name);
    assert.deepEqual(
      new Set(evidence.map(({ probe, subject }) => (probe === "room_members" ? subject : null))),
      new Set([null, ours, theirs]),
    );
    assert.ok(evidence.every(({ probe }) => probe !== "rooms_shared"));
  });
});
