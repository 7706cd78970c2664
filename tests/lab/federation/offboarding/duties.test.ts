// What remains of a partner, and what a purge really deletes, on real homeservers: A removes B, C stays.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { after, before, describe, it } from "node:test";
import pg from "pg";
import { systemClock, systemRandom } from "../../../../src/domain/clock.ts";
import type { RoomId } from "../../../../src/domain/identifiers.ts";
import type { FederationConfig } from "../../../../src/federation/config.ts";
import {
  dryRun,
  NOT_PURGEABLE,
  readPurge,
  runPurge,
} from "../../../../src/federation/offboarding/duties/purge.ts";
import { residualReport } from "../../../../src/federation/offboarding/duties/residual.ts";
import {
  type Run,
  readDutiesEvidence,
  runFile,
  writeRun,
  writeStage,
} from "../../../../src/federation/offboarding/run/run-file.ts";
import { openStateFolder } from "../../../../src/federation/state/folder.ts";
import { type FederatedUser, type Federation, startFederation, until } from "../../../support/federation.ts";
import { FEDERATION_PROCESS } from "../../../support/kills.ts";
import { NO_SCOPE } from "../../../support/removal.ts";
import { recordWith } from "../../../support/sample-files.ts";
import { start, writeFile } from "../../../support/temporary.ts";

type Name = "a" | "b" | "c";
const folder = mkdtempSync(join(tmpdir(), "drawbridge duties "));
let federation: Federation<Name>;
let root: FederatedUser;
let alice: FederatedUser;
let bob: FederatedUser;
let carol: FederatedUser;
let rooms: { whole: RoomId; history: RoomId; kept: RoomId; theirs: RoomId };
let files: { plain: string; quarantined: string };

before(async () => {
  federation = await startFederation(["a", "b", "c"] as const, {
    border: { a: (names) => JSON.stringify({ allowed_servers: Object.values(names) }) },
  });
  const { a, b, c } = federation.servers;
  root = await a.user("root", true);
  [alice, bob, carol] = await Promise.all([a.user("alice"), b.user("bob"), c.user("carol")]);
  const room = async (creator: FederatedUser, ...others: readonly FederatedUser[]) => {
    const made = await creator.createRoom({ name: "shared" });
    for (const user of others) assert.equal((await user.join(made, a.name, b.name, c.name)).status, 200);
    return made;
  };
  const whole = await room(alice, bob, carol);
  const history = await room(alice, bob);
  const kept = await room(alice, bob);
  const theirs = await room(alice, carol);
  rooms = { whole, history, kept, theirs };
  files = { plain: await upload(bob, "b"), quarantined: await upload(bob, "b") };
  for (const [one, media] of [
    [whole, files.plain],
    [kept, files.quarantined],
  ] as const) {
    await bob.call("PUT", `/rooms/${encodeURIComponent(one)}/send/m.room.message/${media}`, {
      msgtype: "m.image",
      body: "quay",
      url: `mxc://${b.name}/${media}`,
    });
    await bob.say(one, "the berth is free");
  }
  for (const text of ["one", "two", "three"]) await bob.say(history, text);
  await alice.say(history, "four");
  await carol.say(theirs, "five");
  for (const one of [whole, history, kept]) {
    await until(
      "B's messages",
      () => alice.heard(one),
      (heard) => heard.length >= 2,
    );
  }
  await until(
    "C's message",
    () => alice.heard(theirs),
    (heard) => heard.length >= 1,
  );
  await until(
    "B's last message",
    () => alice.heard(history),
    (heard) => heard.length === 4,
  );
  for (const media of Object.values(files)) await download(alice, b.name, media);
  await admin("POST", `/media/quarantine/${b.name}/${files.quarantined}`);
});
after(async () => {
  await federation?.dispose();
  rmSync(folder, { recursive: true, force: true });
});

async function upload(user: FederatedUser, at: Name): Promise<string> {
  const answer = await fetch(`${federation.servers[at].url}/_matrix/media/v3/upload`, {
    method: "POST",
    headers: { authorization: `Bearer ${user.accessToken}`, "content-type": "text/plain" },
    body: systemRandom.bytes(16).toString("hex"),
  });
  const { content_uri: uri } = (await answer.json()) as { content_uri: string };
  return uri.slice(uri.lastIndexOf("/") + 1);
}

async function download(user: FederatedUser, server: string, media: string): Promise<void> {
  const url = `${federation.servers.a.url}/_matrix/client/v1/media/download/${server}/${media}`;
  const answer = await fetch(url, { headers: { authorization: `Bearer ${user.accessToken}` } });
  assert.equal(answer.status, 200);
  await answer.arrayBuffer();
  // Synapse writes the time of this access up to a minute late, and a purge leaves what was used after its plan.
  await query("UPDATE remote_media_cache SET last_access_ts = last_access_ts + 3600000 WHERE media_id = $1", [
    media,
  ]);
}

/** A query on A's Synapse. */
async function query(text: string, values: readonly unknown[]) {
  const client = new pg.Client({ connectionString: federation.servers.a.databaseUrl });
  await client.connect();
  try {
    return (await client.query(text, [...values])).rows;
  } finally {
    await client.end();
  }
}

async function admin(method: string, path: string): Promise<number> {
  const answer = await fetch(`${federation.servers.a.url}/_synapse/admin/v1${path}`, {
    method,
    headers: { authorization: `Bearer ${root.accessToken}` },
    ...(method === "POST" && { body: "{}" }),
  });
  await answer.arrayBuffer();
  return answer.status;
}

/** A deployment of A's with a run of its own, whose record says what to purge. */
function deployment(name: string, purge: Readonly<Record<string, unknown>>, countsRows: boolean) {
  const { a, b } = federation.servers;
  const directory = join(folder, name);
  writeFile(join(directory, "token"), root.accessToken, 0o600);
  writeFile(join(directory, "database"), a.databaseUrl, 0o600);
  const private_record_file = join(directory, "private", "record.yaml");
  const text = recordWith("partner.serverName", b.name);
  writeFile(
    private_record_file,
    text.replace(/ {2}purge:\n(?: {4}.*\n)+/, () => `  purge: ${JSON.stringify(purge)}\n`),
    0o600,
  );
  const config = {
    directory,
    homeserver: {
      url: a.url,
      operatorToken: { file: "token" },
      ...(countsRows && { databaseUrl: { file: "database" } }),
    },
    border: { statusToken: { file: a.border.statusTokenFile } },
  } as unknown as FederationConfig;
  const said: string[] = [];
  const context = { config, clock: systemClock, say: (line: string) => said.push(line) };
  const state = openStateFolder(join(directory, "state"), systemRandom);
  const run = writeRun(state, {
    version: 1,
    run: systemRandom.bytes(16).toString("hex"),
    kind: "full",
    trigger: "contract_end",
    remover: a.name,
    partner: b.name,
    self: a.name,
    private_record_file,
    opened_at: new Date(systemClock.now()).toISOString(),
    baseline: { revision: "0".repeat(40), scope: NO_SCOPE },
    contained_at: null,
    waivers: [],
    ended: null,
  });
  return { context, run, said };
}

/** Rooms of A's that B takes part in, with what B said there, and a file of B's in the first. */
async function sharedWithB(count: number): Promise<{ readonly shared: RoomId[]; readonly media: string }> {
  const { a, b } = federation.servers;
  const media = await upload(bob, "b");
  const shared: RoomId[] = [];
  for (let n = 0; n < count; n++) {
    const made = await alice.createRoom({ name: "shared" });
    assert.equal((await bob.join(made, a.name, b.name)).status, 200);
    if (n === 0) {
      const content = { msgtype: "m.image", body: "quay", url: `mxc://${b.name}/${media}` };
      await bob.call("PUT", `/rooms/${encodeURIComponent(made)}/send/m.room.message/${media}`, content);
    }
    for (const text of ["one", "two", "three"]) await bob.say(made, text);
    await until(
      "B's messages",
      () => alice.heard(made),
      (heard) => heard.includes("three"),
    );
    shared.push(made);
  }
  await download(alice, b.name, media);
  return { shared, media };
}

function openStage(run: Run): void {
  writeStage(run, {
    version: 1,
    stage: "data_duties",
    opened_at: new Date(systemClock.now()).toISOString(),
    countersignature_skipped: null,
    scope: NO_SCOPE,
    commit: null,
    proof: null,
  });
}

const everything = () => ({
  remoteMedia: "purge",
  quarantinedMedia: "purge",
  rooms: [
    { room: rooms.whole, how: "room" },
    { room: rooms.history, how: "history" },
    { room: rooms.kept, how: "keep" },
    { room: rooms.theirs, how: "room" },
  ],
});

describe("data duties on a real homeserver", () => {
  it("the residual statement counts the partner's events by room, its keys, and who still shares rooms [OFF-4]", async () => {
    const { b, c } = federation.servers;
    for (const countsRows of [false, true]) {
      const { context, run } = deployment(`residual-${countsRows}`, everything(), countsRows);
      const { statement, unknown } = await residualReport(context, run);
      const events = new Map(statement.rooms.map(({ room, events }) => [room, events]));
      assert.deepEqual([...events.keys()].sort(), [rooms.whole, rooms.history, rooms.kept].sort());
      // A join, and what was said.
      assert.equal(events.get(rooms.whole), 3);
      assert.equal(events.get(rooms.history), 4);
      assert.deepEqual(statement.third_servers, [{ server: c.name, rooms: 1 }]);
      assert.equal(statement.tokens_live_until, null);
      assert.equal(unknown["tokens_live_until"], "no_gateway");
      assert.equal(statement.device_keys === null, !countsRows);
      assert.ok(!JSON.stringify(statement).includes("berth"), b.name);
    }
  });

  it("a dry run shows what would be purged, and deletes nothing [OFF-2]", async () => {
    const { context, run } = deployment("dry", { ...everything(), quarantinedMedia: "keep" }, false);
    const plan = await dryRun(context, run);
    assert.deepEqual(plan.media.files, [{ media_id: files.plain, quarantined: false }]);
    assert.equal(plan.media.kept_in_quarantine, 1);
    assert.deepEqual(
      plan.rooms.map(({ room, how }) => [room, how]).sort(),
      [
        [rooms.whole, "room"],
        [rooms.history, "history"],
      ].sort(),
    );
    const whole = plan.rooms.find(({ room }) => room === rooms.whole);
    assert.equal(whole?.events.partner, 3);
    assert.deepEqual(whole?.other_servers, [federation.servers.c.name]);
    // A room that was never the partner's stays, whatever the record says.
    assert.deepEqual(
      plan.staying.find(({ subject }) => subject === rooms.theirs),
      {
        subject: rooms.theirs,
        reason: "not_a_room_of_the_partner_here",
        events: null,
      },
    );
    assert.equal(plan.staying.find(({ subject }) => subject === rooms.kept)?.reason, "kept_by_contract");
    assert.equal(await admin("GET", `/media/${federation.servers.b.name}/${files.plain}`), 200);
    assert.equal(await admin("GET", `/rooms/${encodeURIComponent(rooms.whole)}`), 200);
    await assert.rejects(runPurge(context, run, plan.digest), { code: "usage", message: /not all closed/ });
    openStage(run);
    await assert.rejects(runPurge(context, run, `sha256:${"0".repeat(64)}`), { code: "usage" });
    await bob.say(rooms.whole, "one more");
    await until(
      "the message",
      () => alice.heard(rooms.whole),
      (heard) => heard.includes("one more"),
    );
    // What was said after the dry run is not counted by it, and a newcomer is.
    await (await federation.servers.a.user("late")).join(rooms.whole);
    await assert.rejects(runPurge(context, run, plan.digest), { code: "usage", message: /more would go/ });
    assert.equal(await admin("GET", `/rooms/${encodeURIComponent(rooms.whole)}`), 200);
    assert.deepEqual(readDutiesEvidence(run), []);
  });

  it("a purge deletes exactly what was shown, continues after an interruption, and proves it by counts [OFF-2]", async () => {
    const { b } = federation.servers;
    const { context, run } = deployment("purge", everything(), true);
    const plan = await dryRun(context, run);
    assert.equal(plan.media.files.length, 2);
    assert.equal(plan.media.other_files, 0);
    openStage(run);
    // Cut off as the first room begins: the files are gone, and that is remembered.
    const cut = { ...context, say: (line: string) => assert.ok(!line.startsWith("room 1"), "cut") };
    await assert.rejects(runPurge(cut, run, plan.digest), /cut/);
    assert.equal(readPurge(run)?.begun?.media_done, true);
    await assert.rejects(dryRun(context, run), { code: "usage", message: /under way/ });

    const done = await runPurge(context, run, plan.digest);
    for (const media of Object.values(files))
      assert.equal(await admin("GET", `/media/${b.name}/${media}`), 404);
    assert.equal(await admin("GET", `/rooms/${encodeURIComponent(rooms.whole)}`), 404);
    assert.equal(await admin("GET", `/rooms/${encodeURIComponent(rooms.kept)}`), 200);
    assert.deepEqual(await alice.heard(rooms.theirs), ["five"]);
    assert.equal((await alice.heard(rooms.kept)).filter((text) => text === "the berth is free").length, 1);
    assert.deepEqual(await query("SELECT 1 FROM event_json WHERE room_id = $1", [rooms.whole]), []);
    const left = await query("SELECT sender, type FROM events WHERE room_id = $1 AND sender LIKE $2", [
      rooms.history,
      `%:${b.name}`,
    ]);
    // Synapse leaves the state and the last message; the evidence counts them.
    assert.deepEqual(left.map(({ type }) => type).sort(), ["m.room.member", "m.room.message"]);

    assert.equal(done.begun?.before?.["remote_media_cache"], 2);
    assert.equal(done.done?.after?.["remote_media_cache"], 0);
    assert.ok((done.begun?.before?.["events"] ?? 0) > (done.done?.after?.["events"] ?? 0));
    const items = readDutiesEvidence(run);
    const probes = items.map(({ probe, verdict }) => `${probe} ${verdict}`);
    for (const one of [
      "purge_media closed",
      "purge_room closed",
      "purge_history closed",
      "rows_before closed",
      "rows_after closed",
      "rows_left unknown",
      "backup_expiry closed",
    ]) {
      assert.ok(probes.includes(one), `${one}: ${probes.join(", ")}`);
    }
    const stays = items.find(({ subject }) => subject === NOT_PURGEABLE)?.references ?? [];
    assert.ok(
      stays.some((row) => row.startsWith("destinations=")),
      stays.join(" "),
    );
    assert.ok(!JSON.stringify(items).includes("berth"));

    await runPurge(context, run, plan.digest);
    assert.deepEqual(readDutiesEvidence(run), items);
    // Killed between its last write and the evidence: the same items, once.
    rmSync(join(run.state.path, runFile(run.run, "duties.json")));
    await runPurge(context, run, plan.digest);
    assert.deepEqual(readDutiesEvidence(run), items);
  });

  it("a purge killed at each of its steps continues, ends the same, and states its evidence once [OFF-2]", async (t) => {
    const { b } = federation.servers;
    const { shared, media } = await sharedWithB(4);
    const [whole, history, second, kept] = shared;
    assert.ok(whole !== undefined && history !== undefined && second !== undefined && kept !== undefined);
    const { context, run } = deployment(
      "killed",
      {
        ...{ remoteMedia: "purge", quarantinedMedia: "keep" },
        rooms: [
          { room: whole, how: "room" },
          { room: history, how: "history" },
          { room: second, how: "room" },
          { room: kept, how: "keep" },
        ],
      },
      true,
    );
    const { digest, rooms: planned } = await dryRun(context, run);
    assert.equal(planned.length, 3);
    openStage(run);
    const { config } = context;
    const args = { config, state: run.state.path, run: run.run, digest };
    const begin = () => start(process.execPath, [FEDERATION_PROCESS, "purge", JSON.stringify(args)]);
    let killed = 0;
    for (const step of ["cached files", "room 1 of 3", "room 2 of 3", "room 3 of 3"]) {
      for (const laterMs of [0, 100]) {
        const before = readPurge(run)?.begun?.rooms.length ?? 0;
        const working = begin();
        // What a kill let end all the same is not begun again.
        await Promise.race([working.printed(step), working.finished]).catch(() => undefined);
        await systemClock.sleep(laterMs);
        working.child.kill("SIGKILL");
        const { signal, stderr } = await working.finished;
        if (signal === "SIGKILL") killed++;
        assert.equal(stderr, "");
        assert.ok((readPurge(run)?.begun?.rooms.length ?? 0) >= before, "what is done stays done");
      }
    }
    t.diagnostic(`${killed} of 8 were killed at work`);
    assert.ok(killed >= 4, "kills met it at work");
    const ended = await begin().finished;
    assert.equal(ended.code, 0, ended.stderr);
    assert.match(ended.stdout, /done\n$/);

    const state = readPurge(run);
    assert.deepEqual(state?.begun?.rooms.map(({ room }) => room).sort(), [whole, history, second].sort());
    assert.equal(await admin("GET", `/media/${b.name}/${media}`), 404);
    for (const gone of [whole, second])
      assert.equal(await admin("GET", `/rooms/${encodeURIComponent(gone)}`), 404);
    assert.equal((await alice.heard(kept)).filter((text) => text === "one").length, 1);
    assert.equal((await alice.heard(history)).includes("one"), false);
    const items = readDutiesEvidence(run);
    assert.deepEqual(
      items
        .filter(({ probe }) => probe.startsWith("purge_"))
        .map(({ probe }) => probe)
        .sort(),
      ["purge_history", "purge_media", "purge_room", "purge_room"],
    );
    assert.equal((await begin().finished).code, 0);
    assert.deepEqual(readDutiesEvidence(run), items);
  });
});
