// Backup and point-in-time recovery, with PostgreSQL's own programs, as docs/operating/replicated-database.md tells an
// operator to; and what a bridge does on the database that was put back, with a real homeserver.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { appendFile, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { freePort } from "../../lab/ports.ts";
import type { EventId } from "../../src/domain/identifiers.ts";
import { encryptedBridge, eventually, GHOST, questionTo } from "../support/encrypted-bridge.ts";
import { repliesTo } from "../support/encrypting-client.ts";
import { startSynapse, type TestSynapse } from "../support/synapse.ts";
import { cliMain, start, writeFile } from "../support/temporary.ts";
import { startPatroni } from "./patroni.ts";

let synapse: TestSynapse;
before(async () => {
  synapse = await startSynapse();
});
after(() => synapse.dispose());

describe("a database that was put back from a backup", () => {
  it("is recovered to a point in time, refused by the bridge, and accepted without asking anything again [INT-3] [DEL-9]", async (t) => {
    let endRestored = async () => {};
    // Before its folder goes: what is registered first is done first.
    t.after(() => endRestored());
    const cluster = await startPatroni(t);
    await cluster.administer("CREATE DATABASE bridge");
    const bridge = await encryptedBridge(t, synapse, {
      databaseUrl: cluster.url("bridge"),
      encryption: { mode: "refuse" },
    });
    const spawned = await bridge.spawn();
    const alice = await synapse.user("alice");
    const room = await alice.createRoom({ invite: [GHOST] });
    await bridge.settled(room);
    const ask = async (body: string) =>
      (
        await alice.call(
          "PUT",
          `/rooms/${encodeURIComponent(room)}/send/m.room.message/${body}`,
          questionTo(body),
        )
      )["event_id"] as EventId;
    const answersTo = async (event: EventId) =>
      (await alice.messages(room)).filter((one) => one.sender === GHOST && repliesTo(one) === event).length;
    const answered = (event: EventId) =>
      eventually("an answer", async () => ((await answersTo(event)) > 0 ? true : undefined));

    const before = await ask("before-the-backup");
    await answered(before);
    const primary = await cluster.healthy();
    const backup = join(cluster.folder, "backup");
    const connection = ["-h", "127.0.0.1", "-p", String(primary.port), "-U", "postgres"];
    await cluster.run("pg_basebackup", [
      ...connection,
      "-D",
      backup,
      "-X",
      "none",
      "-c",
      "fast",
      "--no-password",
    ]);
    await cluster.run("pg_verifybackup", ["-n", backup]);

    // It was asked after the backup, and is in the archive; the timeline changes in between.
    const archived = await ask("after-the-backup");
    await answered(archived);
    const failover = cluster.failover(primary);
    cluster.kill(primary);
    await failover;
    await cluster.healthy();
    await cluster.administer("SELECT pg_create_restore_point('before_the_loss')");
    const lost = await ask("after-the-point");
    await answered(lost);
    spawned.child.kill("SIGTERM");
    await spawned.finished;
    const { rows } = await cluster.administer("SELECT pg_walfile_name(pg_switch_wal()) AS file");
    const archivedFile = join(cluster.archive, rows[0].file as string);
    await eventually("the log is archived", async () => existsSync(archivedFile) || undefined);

    const port = await freePort();
    const restored = join(cluster.folder, "restored");
    await cluster.run("/bin/cp", ["-a", backup, restored]);
    await rm(join(restored, "patroni.dynamic.json"), { force: true });
    await rename(join(restored, "postgresql.base.conf"), join(restored, "postgresql.conf"));
    await appendFile(
      join(restored, "postgresql.auto.conf"),
      `port = ${port}
listen_addresses = '127.0.0.1'
unix_socket_directories = '${cluster.folder}'
synchronous_standby_names = ''
primary_conninfo = ''
primary_slot_name = ''
archive_mode = off
max_connections = 100
restore_command = 'cp "${cluster.archive}/%f" "%p"'
recovery_target_name = 'before_the_loss'
recovery_target_timeline = 'latest'
recovery_target_action = 'promote'
`,
    );
    await cluster.run("/usr/bin/touch", [join(restored, "recovery.signal")]);
    const log = join(cluster.folder, "restored.log");
    const startServer = () => cluster.run("pg_ctl", ["-D", restored, "-l", log, "-w", "-t", "120", "start"]);
    await startServer().catch(async (error: unknown) => {
      throw new Error(await readFile(log, "utf8").catch(() => ""), { cause: error });
    });
    endRestored = async () => {
      await cluster.run("pg_ctl", ["-D", restored, "-m", "immediate", "-w", "stop"]);
    };

    // The bridge on it.
    const url = cluster.memberUrl({ ...primary, port }, "bridge");
    writeFile(join(bridge.folder, "database-url"), url);
    const refused = start(process.execPath, [cliMain(), "bridge", "--config", bridge.configFile]);
    const ended = await refused.finished;
    assert.equal(ended.code, 3, ended.stderr);
    assert.match(ended.stderr, /older than what was done with it/);
    assert.match(ended.stderr, /accept-restored-database/);
    const accepted = await start(process.execPath, [
      ...[cliMain(), "bridge", "accept-restored-database", "--config", bridge.configFile],
    ]).finished;
    assert.equal(accepted.code, 0, accepted.stderr);
    await bridge.spawn();
    const later = await ask("on-the-restored-database");
    await answered(later);
    // Those that the database has forgotten were asked once, and are answered once.
    for (const event of [before, archived, lost, later]) assert.equal(await answersTo(event), 1);
    assert.equal(bridge.agent.requestsOf("send").length, 4);
  });
});
