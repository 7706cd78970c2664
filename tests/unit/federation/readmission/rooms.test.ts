// The rooms that a partner was closed out of, as a re-admission remembers them.
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { systemRandom } from "../../../../src/domain/clock.ts";
import type { RoomId, ServerName, UserId } from "../../../../src/domain/identifiers.ts";
import type { FederationConfig } from "../../../../src/federation/config.ts";
import { freshSigningKey } from "../../../../src/federation/homeserver/signed-request.ts";
import { ROOM_REASONS } from "../../../../src/federation/planes/rooms/room-reasons.ts";
import { journalIn } from "../../../../src/federation/planes/rooms/undo-journal.ts";
import { Progress } from "../../../../src/federation/readmission/readmission.ts";
import { readmissionRooms } from "../../../../src/federation/readmission/rooms.ts";
import type { DesiredState } from "../../../../src/federation/reconcile/desired-state.ts";
import { openStateFolder } from "../../../../src/federation/state/folder.ts";
import { type Script, scriptedHomeserver } from "../../../support/http-server.ts";
import { ManualClock } from "../../../support/manual-clock.ts";
import { temporaryFolder, writeFile } from "../../../support/temporary.ts";

const PARTNER = "b.test" as ServerName;

const ROOT = "@root:a.test" as UserId;
const LOCKED = "@locked:a.test" as UserId;

/** Rooms of the homeserver `a.test`, of which the partner was closed out of those in `kept`. */
async function roomsOn(t: TestContext, script: Script, kept: readonly string[]) {
  const { url } = await scriptedHomeserver(t, (request) => {
    if (request.path.endsWith("/whoami")) return { body: { user_id: ROOT } };
    return script(request);
  });
  const directory = temporaryFolder(t);
  writeFile(join(directory, "token"), "token", 0o600);
  writeFile(join(directory, "signing.key"), freshSigningKey(systemRandom, "a"), 0o600);
  const folder = join(directory, "state", "rooms");
  mkdirSync(folder, { recursive: true });
  const journal = journalIn(folder, PARTNER);
  for (const room of kept) {
    const users = [{ user: "@bob:b.test" as UserId, before: "join" as const }];
    await journal.append({ act: "bans", room: room as RoomId, actor: ROOT, users });
  }
  await journal.finish();
  const config = {
    ...{ directory, state: "state" },
    homeserver: { url, operatorToken: { file: "token" }, signingKeyFile: "signing.key" },
    border: { statusToken: { file: "token" } },
  } as unknown as FederationConfig;
  const closing = [
    { serverName: PARTNER, name: "b", mode: "removed", after: "read_only", unclosable: "list" },
  ];
  const intent = { version: 1, own: "a.test", allow: ["a.test"], retained: [], ghosts: [], closing };
  const desired = {
    planes: { rooms: { files: new Map([["rooms/rooms.json", JSON.stringify(intent)]]), digest: "" } },
  } as unknown as DesiredState;
  const state = openStateFolder(join(directory, "state"), systemRandom);
  const notes: string[] = [];
  const reporter = { event: () => undefined, note: (_: string, text: string) => notes.push(text) };
  const rooms = readmissionRooms({ config, clock: new ManualClock(0), state, reporter });
  return {
    notes,
    observe: () => rooms.observe(desired, PARTNER),
    replace: (...names: string[]) => rooms.replace(desired, PARTNER, names),
  };
}

describe("readmissionRooms", () => {
  it("a room whose ID the grammar excludes is remembered by a name that can be read again [RDM-1]", async (t) => {
    const script: Script = ({ path }) =>
      path.endsWith("/rooms")
        ? { body: { rooms: [], complete: true } }
        : { status: 404, body: { errcode: "M_NOT_FOUND" } };
    const rooms = await roomsOn(t, script, ["!a quay\u00e9:b.test"]);
    const named = "!a%20quay%C3%A9:b.test";
    const touched = await rooms.observe();
    assert.deepEqual(
      Progress.shape.touched.parse(touched)?.map(({ room }) => room),
      [named],
    );
    assert.deepEqual(
      (await rooms.replace(named)).map(({ room }) => room),
      [named],
    );
  });

  it("a room that was purged since is gone, neither replaced nor opened again [RDM-1]", async (t) => {
    const script: Script = ({ path }) =>
      path.endsWith("/rooms")
        ? { body: { rooms: [], complete: true } }
        : { status: 404, body: { errcode: "M_NOT_FOUND" } };
    const rooms = await roomsOn(t, script, ["!purged"]);
    const gone = [{ room: "!purged", state: "gone", replacement: null, repairable: "yes" }];
    assert.deepEqual(await rooms.observe(), gone);
    assert.deepEqual(await rooms.replace("!purged"), gone);
  });

  it("a room that cannot be read stays as it is and keeps no other from being replaced, and who could not join the new one is told [RDM-1]", async (t) => {
    let isMade = false;
    const rooms = await roomsOn(
      t,
      ({ method, path }) => {
        if (path.endsWith("/drawbridge/v1/rooms")) return { body: { rooms: [], complete: true } };
        if (path === "/_synapse/admin/v1/rooms") {
          return {
            body: { rooms: ["!kept", "!withheld", "!foreign:c.test"].map((room_id) => ({ room_id })) },
          };
        }
        if (path.endsWith("/createRoom")) {
          isMade = true;
          return { body: { room_id: "!new" } };
        }
        if (path.endsWith("/state")) {
          // No answer that could be read, as of a room with more members than fit into one.
          if (!/!kept|!new/.test(path)) return { body: "" };
          const isLeft = path.includes("!kept") && isMade;
          return { body: { state: stateWith(isLeft ? "leave" : "join", isMade ? "invite" : "join") } };
        }
        if (path.endsWith(`/users/${LOCKED}`)) return { body: { name: LOCKED, locked: true } };
        if (path.endsWith("/block")) return { body: { block: true } };
        if (method === "DELETE") return { body: { delete_id: "d" } };
        if (path.endsWith("/delete_status"))
          return { body: { results: [{ delete_id: "d", status: "complete" }] } };
        return { status: 404, body: { errcode: "M_NOT_FOUND" } };
      },
      ["!kept", "!withheld"],
    );
    const found = await rooms.replace("!kept", "!withheld");
    assert.deepEqual(
      found.map(({ room, state, replacement }) => [room, state, replacement]),
      [
        ["!kept", "replaced", "!new"],
        ["!withheld", "kept", null],
      ],
    );
    assert.deepEqual(
      rooms.notes.filter((note) => note.includes("left_out")),
      [`!kept: left_out: ${ROOM_REASONS.left_out}`],
    );
  });
});

function stateWith(membership: string, locked: string) {
  const event = (type: string, state_key: string, content: object) => ({
    ...{ type, state_key, content, sender: ROOT, event_id: `$${type}`, origin_server_ts: 0 },
  });
  return [
    event("m.room.create", "", { room_version: "10" }),
    event("m.room.member", ROOT, { membership }),
    event("m.room.member", LOCKED, { membership: locked }),
  ];
}
