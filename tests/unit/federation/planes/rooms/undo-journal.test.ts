import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import type { RoomId, ServerName, UserId } from "../../../../../src/domain/identifiers.ts";
import { journaledPartners, journalIn } from "../../../../../src/federation/planes/rooms/undo-journal.ts";
import { ROOT, temporaryFolder } from "../../../../support/temporary.ts";

const SERVER = "b.test" as ServerName;
const ROOM = "!one:a.test" as RoomId;
const OTHER = "!two:a.test" as RoomId;
const acl = (room: RoomId) => ({ act: "acl", room, before: null }) as const;

describe("Journal", () => {
  it("holds what was appended before a crash, without a line that was cut off, and goes on after it [PLN-2]", async (t) => {
    const folder = join(temporaryFolder(t), "rooms");
    const file = join(folder, "b.test.jsonl");
    const first = journalIn(folder, SERVER);
    assert.equal(existsSync(file), false, "nothing is made before there is something to say");
    await Promise.all([first.append(acl(ROOM)), first.append(acl(OTHER))]);
    await first.finish();
    appendFileSync(file, '{"act":"lifted","room":"!on');
    const second = journalIn(folder, SERVER);
    assert.deepEqual(
      second.rooms.map(({ room }) => room),
      [ROOM, OTHER],
    );
    await second.append({ act: "bans", room: ROOM, actor: "@a:a.test" as UserId, users: [] });
    await second.finish();
    assert.equal(readFileSync(file, "utf8").trim().split("\n").length, 3);
    assert.equal(journalIn(folder, SERVER).room(ROOM)?.acl?.before, null);
  });

  it("an entry that a full disk takes in part was not appended, and spoils none after it [PLN-2]", (t) => {
    const folder = temporaryFolder(t);
    const module = join(ROOT, "src/federation/planes/rooms/undo-journal.ts");
    const program = `import fs from "node:fs/promises";
      import { syncBuiltinESMExports } from "node:module";
      import { journalIn } from ${JSON.stringify(module)};
      const { open } = fs;
      // Such a disk may refuse to close a file, too.
      fs.open = async (...about) => {
        const file = await open(...about);
        const close = async () => { await file.close(); throw Object.assign(new Error(), { code: "EIO" }); };
        return { appendFile: (text) => file.appendFile(text), datasync: () => file.datasync(), close };
      };
      syncBuiltinESMExports();
      const journal = journalIn(${JSON.stringify(folder)}, "${SERVER}");
      const acl = { act: "acl", room: "${OTHER}", before: null };
      const users = Array.from({ length: 60 }, (_, n) => ({ user: \`@user\${n}:${SERVER}\`, before: "join" }));
      const bans = { act: "bans", room: "${ROOM}", actor: "@a:a.test", users };
      for (const entry of [acl, bans, { ...acl, room: "!three:a.test" }])
        console.log(await journal.append(entry).then(() => journal.rooms.length, ({ code }) => code));`;
    // Files of at most a kilobyte, as on a disk that is full.
    const limited = 'ulimit -f 1; exec "$0" --input-type=module --eval "$1"';
    const { stdout } = spawnSync("bash", ["-c", limited, process.execPath, program], { encoding: "utf8" });
    assert.equal(stdout, "1\nEFBIG\n2\n");
    const { damage, rooms } = journalIn(folder, SERVER);
    assert.equal(damage, undefined);
    assert.deepEqual(
      rooms.map(({ room }) => room),
      [OTHER, "!three:a.test"],
    );
  });

  it("removes its file when everything is taken back, and keeps one with a line that is no entry, which takes more [PLN-2]", async (t) => {
    const folder = temporaryFolder(t);
    const file = join(folder, "b.test.jsonl");
    const journal = journalIn(folder, SERVER);
    await journal.append(acl(ROOM));
    await journal.append({ act: "lifted", room: ROOM });
    assert.equal(existsSync(file), true);
    await journal.finish();
    assert.equal(existsSync(file), false);
    appendFileSync(file, "{}\n");
    const damaged = journalIn(folder, SERVER);
    assert.equal(damaged.damage?.code, "state_unreadable");
    await damaged.append(acl(ROOM), { act: "lifted", room: ROOM });
    await damaged.finish();
    assert.equal(readFileSync(file, "utf8").split("\n").length, 4);
  });

  it("a file that is named after no server is no journal [PLN-2]", async (t) => {
    const folder = temporaryFolder(t);
    for (const name of ["%zz.jsonl", "b.test.jsonl", "notes.txt"]) appendFileSync(join(folder, name), "");
    assert.deepEqual(await journaledPartners(folder), [SERVER]);
  });
});
