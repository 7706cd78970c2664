// The rooms that a partner was closed out of, as a re-admission remembers them.
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { systemRandom } from "../../../../src/domain/clock.ts";
import type { RoomId, ServerName, UserId } from "../../../../src/domain/identifiers.ts";
import type { FederationConfig } from "../../../../src/federation/config.ts";
import { freshSigningKey } from "../../../../src/federation/homeserver/signed-request.ts";
import { journalIn } from "../../../../src/federation/planes/rooms/undo-journal.ts";
import { Progress } from "../../../../src/federation/readmission/readmission.ts";
import { readmissionRooms } from "../../../../src/federation/readmission/rooms.ts";
import type { DesiredState } from "../../../../src/federation/reconcile/desired-state.ts";
import { openStateFolder } from "../../../../src/federation/state/folder.ts";
import { scriptedHomeserver } from "../../../support/http-server.ts";
import { ManualClock } from "../../../support/manual-clock.ts";
import { temporaryFolder, writeFile } from "../../../support/temporary.ts";

const PARTNER = "b.test" as ServerName;

describe("readmissionRooms", () => {
  it("a room whose ID the grammar excludes is remembered by a name that can be read again [RDM-1]", async (t) => {
    const { url } = await scriptedHomeserver(t, ({ path }) => {
      if (path.endsWith("/whoami")) return { body: { user_id: "@root:a.test" } };
      return path.endsWith("/rooms") ? { body: { rooms: [] } } : { status: 404, body: {} };
    });
    const directory = temporaryFolder(t);
    writeFile(join(directory, "token"), "token", 0o600);
    writeFile(join(directory, "signing.key"), freshSigningKey(systemRandom, "a"), 0o600);
    const folder = join(directory, "state", "rooms");
    mkdirSync(folder, { recursive: true });
    const journal = journalIn(folder, PARTNER);
    const room = "!a quay\u00e9:b.test" as RoomId;
    await journal.append({
      ...{ act: "bans", room, actor: "@root:a.test" as UserId },
      users: [{ user: "@bob:b.test" as UserId, before: "join" }],
    });
    await journal.finish();
    const config = {
      ...{ directory, state: "state" },
      homeserver: { url, operatorToken: { file: "token" }, signingKeyFile: "signing.key" },
      border: { statusToken: { file: "token" } },
    } as unknown as FederationConfig;
    const intent = { version: 1, own: "a.test", allow: ["a.test"], retained: [], closing: [] };
    const desired = {
      planes: { rooms: { files: new Map([["rooms/rooms.json", JSON.stringify(intent)]]), digest: "" } },
    } as unknown as DesiredState;
    const state = openStateFolder(join(directory, "state"), systemRandom);
    const reporter = { event: () => undefined, note: () => undefined };
    const rooms = readmissionRooms({ config, clock: new ManualClock(0), state, reporter });
    const touched = await rooms.observe(desired, PARTNER);
    assert.deepEqual(
      Progress.shape.touched.parse(touched)?.map((one) => one.room),
      ["!a%20quay%C3%A9:b.test"],
    );
    const replaced = await rooms.replace(desired, PARTNER, ["!a%20quay%C3%A9:b.test"]);
    assert.deepEqual(
      replaced.map((one) => one.room),
      ["!a%20quay%C3%A9:b.test"],
    );
  });
});
