// A purge against scripted answers: what a real homeserver does only on a bad day.
import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { systemRandom } from "../../../../../src/domain/clock.ts";
import type { FederationConfig } from "../../../../../src/federation/config.ts";
import {
  dryRun,
  leftOver,
  readPurge,
  runPurge,
} from "../../../../../src/federation/offboarding/duties/purge.ts";
import {
  beyondWhatWasShown,
  type PurgePlan,
  planPurge,
} from "../../../../../src/federation/offboarding/duties/purge-plan.ts";
import { residualReport } from "../../../../../src/federation/offboarding/duties/residual.ts";
import type { DutiesSession } from "../../../../../src/federation/offboarding/duties/session.ts";
import type { PrivateRecord } from "../../../../../src/federation/offboarding/private-record/schema.ts";
import {
  readDutiesEvidence,
  writeRun,
  writeStage,
} from "../../../../../src/federation/offboarding/run/run-file.ts";
import { openStateFolder } from "../../../../../src/federation/state/folder.ts";
import { CompletionPredicate } from "../../../../../src/records/format/statements.ts";
import { type ReceivedRequest, type Script, scriptedHomeserver } from "../../../../support/http-server.ts";
import { ManualClock } from "../../../../support/manual-clock.ts";
import { NO_SCOPE } from "../../../../support/removal.ts";
import { recordWith } from "../../../../support/sample-files.ts";
import { temporaryFolder, writeFile } from "../../../../support/temporary.ts";

const AT = "2026-02-01T00:00:00.000Z";
const PARTNER = "matrix.lighthouse.example:8448";
const ROOM = "!quay:harbour.example";

/** One shared room with one file of the partner's in it. */
class Homeserver {
  readonly files = new Map([["blob", { quarantined: false }]]);
  room = ROOM;
  isRoomThere = true;
  /** Times of events of ours besides. */
  readonly later: number[] = [];
  /** Whether purging the cache does anything. */
  purges = true;
  /** Answers before the rest. */
  instead: Script | undefined;
  readonly requests: string[] = [];

  readonly script: Script = (request) => {
    this.requests.push(`${request.method} ${request.path}`);
    const special = this.instead?.(request);
    return special !== undefined && special !== "hang" && special !== "reset" && special.status !== 599
      ? special
      : this.#answer(request);
  };

  #answer({ method, path, query }: ReceivedRequest): ReturnType<Script> {
    const missing = { status: 404, body: { errcode: "M_NOT_FOUND" } };
    if (path.endsWith("/whoami")) return { body: { user_id: "@root:harbour.example" } };
    if (path.includes("/federation/destinations/")) {
      if (!path.endsWith("/rooms")) return { body: { destination: PARTNER } };
      return { body: { rooms: [{ room_id: this.room }], total: 1 } };
    }
    if (path.endsWith("/drawbridge/v1/rooms")) return { body: { rooms: [], complete: true } };
    if (path.endsWith("/admin/v1/rooms")) {
      return { body: { rooms: [{ room_id: this.room, joined_members: 2, joined_local_members: 1 }] } };
    }
    if (path.endsWith("/delete_status")) return { body: { results: [{ status: "complete" }] } };
    if (method === "DELETE" && path.endsWith(this.room)) {
      this.isRoomThere = false;
      return { body: { delete_id: "one" } };
    }
    if (path.endsWith("/purge_media_cache")) {
      if (this.purges)
        for (const [id, { quarantined }] of this.files) if (!quarantined) this.files.delete(id);
      return { body: { deleted: 1 } };
    }
    const released = /\/unquarantine\/[^/]+\/(.+)$/.exec(path)?.[1];
    if (released !== undefined) {
      this.files.set(released, { quarantined: false });
      return { body: {} };
    }
    const file = /\/v1\/media\/[^/]+\/(.+)$/.exec(path)?.[1];
    if (file !== undefined) {
      const found = this.files.get(file);
      if (found === undefined) return missing;
      return {
        body: { media_info: { last_access_ts: 5, quarantined_by: found.quarantined ? "@root" : null } },
      };
    }
    if (!this.isRoomThere) return missing;
    if (path.endsWith("/media"))
      return { body: { local: [], remote: [`mxc://${PARTNER}/blob`, "mxc://other/blob"] } };
    if (path.endsWith("/messages")) {
      // More events, each as long as one may be and escaped, are a longer answer than any that is read.
      if (Number(query.get("limit")) > 200) return { body: "" };
      const event = (sender: string, at = 1) => ({ sender, origin_server_ts: at });
      const ours = this.later.map((at) => event("@alice:harbour.example", at));
      return { body: { chunk: [event(`@bob:${PARTNER}`), event("@alice:harbour.example"), ...ours] } };
    }
    if (path.endsWith("/state")) {
      const member = (user: string) => ({
        ...{ type: "m.room.member", state_key: user, sender: user, event_id: `$${user}` },
        content: { membership: "join" },
      });
      return { body: { state: [member(`@bob:${PARTNER}`), member("@alice:harbour.example")] } };
    }
    return missing;
  }
}

async function purging(t: TestContext, purge: Readonly<Record<string, unknown>> = {}) {
  const homeserver = new Homeserver();
  const { url } = await scriptedHomeserver(t, homeserver.script);
  const directory = temporaryFolder(t);
  writeFile(join(directory, "token"), "token", 0o600);
  const private_record_file = join(directory, "record.yaml");
  const rooms = [{ room: ROOM, how: "room" }];
  writeFile(
    private_record_file,
    recordWith("duties.purge", { remoteMedia: "purge", quarantinedMedia: "purge", rooms, ...purge }),
    0o600,
  );
  const clock = new ManualClock(Date.parse(AT));
  const state = openStateFolder(join(directory, "state"), systemRandom);
  const run = writeRun(state, {
    ...{ version: 1, run: "0".repeat(32), kind: "full", trigger: "contract_end" },
    ...{ remover: "harbour.example", partner: PARTNER, self: "harbour.example" },
    ...{ private_record_file, opened_at: AT, contained_at: null, waivers: [], ended: null },
    baseline: { revision: "0".repeat(40), scope: NO_SCOPE },
  });
  writeStage(run, {
    ...{ version: 1, stage: "data_duties", opened_at: AT, countersignature_skipped: null },
    ...{ scope: NO_SCOPE, commit: null, proof: null },
  });
  const config = {
    directory,
    homeserver: { url, operatorToken: { file: "token" } },
    border: { statusToken: { file: "token" } },
  } as unknown as FederationConfig;
  return {
    homeserver,
    run,
    private_record_file,
    context: { config, clock, say: () => undefined },
  };
}

describe("runPurge", () => {
  it("runPurge reports a file that stays and states no evidence, and the next run ends it [OFF-2]", async (t) => {
    const { homeserver, run, context } = await purging(t);
    const { digest, media } = await dryRun(context, run);
    assert.deepEqual(media.files, [{ media_id: "blob", quarantined: false }]);
    homeserver.purges = false;
    await assert.rejects(runPurge(context, run, digest), {
      code: "program_failed",
      message: /1 of 1 cached files/,
    });
    assert.deepEqual(readDutiesEvidence(run), []);
    assert.ok(homeserver.isRoomThere);
    homeserver.purges = true;
    await runPurge(context, run, digest);
    assert.ok(!homeserver.isRoomThere && homeserver.files.size === 0);
    assert.ok(readDutiesEvidence(run).length > 0);
  });

  it("runPurge releases a file from quarantine first, and only where the record says so [OFF-2]", async (t) => {
    for (const quarantinedMedia of ["purge", "keep"]) {
      const { homeserver, run, context } = await purging(t, { quarantinedMedia });
      homeserver.files.set("blob", { quarantined: true });
      const { digest, media } = await dryRun(context, run);
      assert.equal(media.kept_in_quarantine, quarantinedMedia === "keep" ? 1 : 0);
      await runPurge(context, run, digest);
      assert.equal(
        homeserver.requests.some((one) => one.includes("unquarantine")),
        quarantinedMedia === "purge",
      );
      assert.equal(homeserver.files.size, quarantinedMedia === "purge" ? 0 : 1);
    }
  });

  it("runPurge continues after a failure of the homeserver, and repeats no step [OFF-2]", async (t) => {
    const { homeserver, run, context } = await purging(t);
    const { digest } = await dryRun(context, run);
    homeserver.instead = ({ method, path }) =>
      method === "DELETE" && path.endsWith(ROOM)
        ? { status: 403, body: { errcode: "M_FORBIDDEN" } }
        : { status: 599 };
    await assert.rejects(runPurge(context, run, digest), { code: "homeserver_refused" });
    assert.equal(readPurge(run)?.begun?.media_done, true);
    homeserver.instead = undefined;
    homeserver.requests.length = 0;
    await runPurge(context, run, digest);
    assert.ok(!homeserver.requests.some((one) => one.includes("purge_media_cache")));
    const items = readDutiesEvidence(run);
    homeserver.requests.length = 0;
    await runPurge(context, run, digest);
    assert.deepEqual([readDutiesEvidence(run), homeserver.requests], [items, []]);
  });

  it("runPurge proves nothing while a room is still there [OFF-2]", async (t) => {
    const { homeserver, run, context } = await purging(t);
    const { digest } = await dryRun(context, run);
    homeserver.instead = ({ method }) =>
      method === "DELETE" ? { body: { delete_id: "one" } } : { status: 599 };
    const { clock } = context;
    const passing = { now: () => clock.now(), sleep: (ms: number) => clock.advance(ms) };
    const stays = { code: "program_failed", message: /not purged yet: room !quay/ };
    await assert.rejects(runPurge({ ...context, clock: passing }, run, digest), stays);
    assert.deepEqual([readPurge(run)?.begun?.rooms, readDutiesEvidence(run)], [[], []]);
    homeserver.instead = undefined;
    await runPurge(context, run, digest);
    assert.ok(readDutiesEvidence(run).some(({ probe }) => probe === "purge_room"));
  });

  it("a purge that was killed before its evidence was kept keeps it by the same command or the next dry run [OFF-2]", async (t) => {
    for (const again of ["same", "dry run"]) {
      const { run, context } = await purging(t);
      const { digest } = await dryRun(context, run);
      await runPurge(context, run, digest);
      const items = readDutiesEvidence(run);
      assert.ok(items.length > 0);
      rmSync(join(run.state.path, "offboarding", run.run, "duties.json"));
      assert.deepEqual(readDutiesEvidence(run), []);
      await (again === "same" ? runPurge(context, run, digest) : dryRun(context, run));
      assert.deepEqual(readDutiesEvidence(run), items, again);
    }
  });

  it("a room that was purged before a failure is neither purged nor stated twice [OFF-2]", async (t) => {
    const other = "!wharf:harbour.example";
    const rooms = [ROOM, other].map((room) => ({ room, how: "room" }));
    const { homeserver, run, context } = await purging(t, { rooms });
    let isOtherThere = true;
    let refuses = true;
    homeserver.instead = ({ method, path }) => {
      if (path.endsWith("/rooms") && !path.includes("drawbridge")) {
        return { body: { rooms: [ROOM, other].map((room_id) => ({ room_id })), total: 2 } };
      }
      if (!path.includes("!wharf")) return { status: 599 };
      if (method === "DELETE") {
        if (refuses) return { status: 403, body: { errcode: "M_FORBIDDEN" } };
        isOtherThere = false;
        return { body: { delete_id: "two" } };
      }
      if (!isOtherThere) return { status: 404, body: { errcode: "M_NOT_FOUND" } };
      return path.endsWith("/state") ? { body: { state: [] } } : { status: 599 };
    };
    const { digest } = await dryRun(context, run);
    await assert.rejects(runPurge(context, run, digest), { code: "homeserver_refused" });
    const done = () => (readPurge(run)?.begun?.rooms ?? []).map(({ room }) => room);
    assert.deepEqual(done(), [ROOM]);
    refuses = false;
    homeserver.requests.length = 0;
    await runPurge(context, run, digest);
    assert.deepEqual(done(), [ROOM, other]);
    assert.ok(!homeserver.requests.some((one) => one.includes("/rooms/!quay")), `${homeserver.requests}`);
    const purged = readDutiesEvidence(run).filter(({ probe }) => probe === "purge_room");
    assert.deepEqual(
      purged.map(({ subject }) => subject),
      [ROOM, other],
    );
  });

  it("a purge of history that was cut off is waited for, and begun anew where it failed or is forgotten [OFF-2]", async (t) => {
    for (const status of ["complete", "failed", undefined]) {
      const { homeserver, run, context } = await purging(t, { rooms: [{ room: ROOM, how: "history" }] });
      const { digest } = await dryRun(context, run);
      let [begun, isRefused]: [number, boolean] = [0, true];
      homeserver.instead = ({ path }) => {
        if (path.includes("/purge_history/")) return { body: { purge_id: `purge${++begun}` } };
        if (!path.includes("/purge_history_status/")) return { status: 599 };
        if (isRefused) return { status: 403, body: { errcode: "M_FORBIDDEN" } };
        if (path.endsWith("purge2")) return { body: { status: "complete" } };
        return status === undefined
          ? { status: 404, body: { errcode: "M_NOT_FOUND" } }
          : { body: { status } };
      };
      await assert.rejects(runPurge(context, run, digest), { code: "homeserver_refused" });
      assert.deepEqual(readPurge(run)?.begun?.under_way, { [ROOM]: "purge1" });
      isRefused = false;
      await runPurge(context, run, digest);
      assert.equal(begun, status === "complete" ? 1 : 2, status);
      assert.ok(readDutiesEvidence(run).some(({ probe }) => probe === "purge_history"));
    }
  });

  it("a purge of history is not taken for done when it fails, or the homeserver forgets it [OFF-2]", async (t) => {
    for (const last of [{ body: { status: "failed" } }, { status: 404, body: { errcode: "M_NOT_FOUND" } }]) {
      const { homeserver, run, context } = await purging(t, { rooms: [{ room: ROOM, how: "history" }] });
      const { digest } = await dryRun(context, run);
      homeserver.instead = ({ path }) => {
        if (path.includes("/purge_history/")) return { body: { purge_id: "one" } };
        return path.includes("/purge_history_status/") ? last : { status: 599 };
      };
      const failed = { code: "program_failed", message: /not purged yet: the history of !quay/ };
      await assert.rejects(runPurge(context, run, digest), failed);
      assert.deepEqual(readDutiesEvidence(run), []);
    }
  });

  it("a purge of history is not taken for done where no such address is routed [OFF-2]", async (t) => {
    for (const body of [{ errcode: "M_UNRECOGNIZED" }, "<html>Not Found</html>"]) {
      const { homeserver, run, context } = await purging(t, { rooms: [{ room: ROOM, how: "history" }] });
      const { digest } = await dryRun(context, run);
      homeserver.instead = ({ path }) => ({ status: path.includes("/purge_history/") ? 404 : 599, body });
      await assert.rejects(runPurge(context, run, digest), { code: "homeserver_refused" });
      assert.deepEqual(readDutiesEvidence(run), []);
    }
  });

  it("a room whose ID the grammar excludes is purged, and counted among what remains [OFF-2]", async (t) => {
    const named = "!a%20quay%C3%A9:harbour.example";
    const { homeserver, run, context } = await purging(t, { rooms: [{ room: named, how: "room" }] });
    homeserver.room = "!a quay\u00e9:harbour.example";
    const { statement } = await residualReport(context, run);
    assert.deepEqual(CompletionPredicate.shape.residual.parse(statement).rooms, [{ room: named, events: 1 }]);
    const { digest } = await dryRun(context, run);
    await runPurge(context, run, digest);
    assert.ok(!homeserver.isRoomThere);
    assert.ok(
      readDutiesEvidence(run).some(({ probe, subject }) => probe === "purge_room" && subject === named),
    );
  });

  it("a room that cannot be read is named where it is the partner's, and keeps nothing else from being purged or stated [OFF-2]", async (t) => {
    const huge = "!huge:harbour.example";
    const rooms = [ROOM, huge].map((room) => ({ room, how: "room" }));
    const { homeserver, run, context } = await purging(t, { rooms });
    homeserver.instead = ({ path }) => {
      const listed = (...ids: string[]) => ({
        body: { rooms: ids.map((room_id) => ({ room_id })), total: 2 },
      });
      if (path.includes("!huge") && path.endsWith("/state")) return { body: "" };
      if (path.endsWith("/admin/v1/rooms")) return listed(ROOM, "!huge:third.example");
      return path.includes("/federation/destinations/") && path.endsWith("/rooms")
        ? listed(ROOM, huge)
        : { status: 599 };
    };
    const { statement, unknown } = await residualReport(context, run);
    assert.deepEqual(CompletionPredicate.shape.residual.parse(statement).rooms, [
      { room: huge, events: null },
      { room: ROOM, events: 1 },
    ]);
    assert.deepEqual([unknown["rooms"], unknown["third_servers"]], ["room_not_read", "room_not_read"]);
    const { digest, staying } = await dryRun(context, run);
    assert.deepEqual(staying, [{ subject: huge, reason: "room_not_read", events: null }]);
    await runPurge(context, run, digest);
    assert.ok(!homeserver.isRoomThere);
    const left = readDutiesEvidence(run).find(({ subject }) => subject === "rows_not_purgeable");
    assert.equal(left?.verdict, "unknown");
    assert.ok(left.references.includes(`${huge}=unknown`));
  });

  it("the plan of a purge can be read again where such a room stays [OFF-2]", async (t) => {
    const { homeserver, run, context } = await purging(t, { rooms: [] });
    homeserver.room = "!a quay\u00e9:harbour.example";
    const plan = await dryRun(context, run);
    assert.deepEqual(
      plan.staying.map(({ subject }) => subject),
      ["!a%20quay%C3%A9:harbour.example"],
    );
    assert.deepEqual(readPurge(run)?.plan, plan);
  });

  it("runPurge refuses a room in which more was said since the dry run [OFF-2]", async (t) => {
    const later = Date.parse(AT) + 60_000;
    const { homeserver, run, context } = await purging(t);
    const { digest } = await dryRun(context, run);
    homeserver.later.push(later);
    await assert.rejects(runPurge(context, run, digest), {
      code: "usage",
      message: /more would go than was shown/,
    });
    assert.ok(homeserver.isRoomThere);
    const again = await dryRun(context, run);
    assert.equal(again.rooms[0]?.events.own, 2);
    await runPurge(context, run, again.digest);
    assert.ok(!homeserver.isRoomThere);
  });

  it("runPurge leaves events that are younger than the dry run when only a room's history is purged [OFF-2]", async (t) => {
    const { homeserver, run, context } = await purging(t, { rooms: [{ room: ROOM, how: "history" }] });
    const { digest } = await dryRun(context, run);
    homeserver.later.push(Date.parse(AT) + 60_000);
    await runPurge(context, run, digest);
    assert.ok(homeserver.isRoomThere);
  });

  it("runPurge refuses the dry run's digest when the record has been changed to keep more [OFF-2]", async (t) => {
    const changes = [
      { rooms: [{ room: ROOM, how: "keep" }] },
      { rooms: [{ room: ROOM, how: "history" }] },
      { quarantinedMedia: "keep" },
      { remoteMedia: "keep", quarantinedMedia: "keep" },
    ];
    for (const change of changes) {
      const { homeserver, run, context, private_record_file } = await purging(t);
      homeserver.files.set("blob", { quarantined: true });
      const { digest } = await dryRun(context, run);
      const rooms = [{ room: ROOM, how: "room" }];
      const purge = { remoteMedia: "purge", quarantinedMedia: "purge", rooms, ...change };
      writeFile(private_record_file, recordWith("duties.purge", purge), 0o600);
      const refused = { code: "usage", message: /the record no longer has this purged/ };
      await assert.rejects(runPurge(context, run, digest), refused, JSON.stringify(change));
      assert.ok(homeserver.isRoomThere && homeserver.files.size === 1);
    }
  });

  it("runPurge deletes nothing by another digest than the last dry run's, nor before the stage of data duties is open [OFF-2]", async (t) => {
    const { homeserver, run, context } = await purging(t);
    const { digest } = await dryRun(context, run);
    const another = { code: "usage", message: /not the digest of the last dry run/ };
    await assert.rejects(runPurge(context, run, `sha256:${"0".repeat(64)}`), another);
    rmSync(join(run.state.path, "offboarding", run.run, "stages", "data_duties.json"));
    await assert.rejects(runPurge(context, run, digest), {
      code: "usage",
      message: /not all closed and signed/,
    });
    assert.ok(homeserver.isRoomThere && homeserver.files.size === 1);
  });

  it("rows of rooms are left over where no room stays, and go with those that the record keeps [OFF-2]", () => {
    const left = (...staying: PurgePlan["staying"]) =>
      leftOver({
        ...{ backups: { owner: "ops", expireBy: "2027-01-31" }, isDestination: false, at: AT },
        after: { events: 2, receipts_linearized: 0, destinations: 1 },
        begun: { at: AT, before: null, media_done: true, rooms: [], under_way: {} },
        plan: {
          ...{ schema: "svc.federation.purge_plan.v1", run: "0".repeat(32), partner: PARTNER, at: AT },
          ...{ digest: `sha256:${"0".repeat(64)}`, rooms: [], staying },
          media: {
            ...{ purge: true, files: [], kept_in_quarantine: 0, before_ms: 6, other_files: 0 },
            is_whole: true,
          },
        },
      });
    assert.deepEqual(left(), ["events=2", "destinations=1"]);
    const kept = { subject: ROOM, reason: "kept_by_contract", events: 2 };
    assert.deepEqual(left(kept), ["destinations=1"]);
  });

  it("a purge is planned however many files of the partner's are cached [OFF-2]", async () => {
    const files = Array.from({ length: 200_000 }, (_, index) => {
      return { mediaId: `file${index}`, isQuarantined: false, lastAccessMs: index };
    });
    const session = {
      ...{ own: "harbour.example", partner: PARTNER, say: () => undefined },
      operator: { destinationRooms: async () => [], rooms: async () => [] },
      home: { rooms: async () => [] },
      tables: { files: async () => files, otherFiles: async () => 0, eventsByRoom: async () => new Map() },
    } as unknown as DutiesSession;
    const record = { duties: { purge: { remoteMedia: "purge", rooms: [] } } } as unknown as PrivateRecord;
    const { media } = await planPurge(session, "1".repeat(32), record, { atMs: 0 });
    assert.deepEqual([media.files.length, media.before_ms], [200_000, 200_000]);
  });

  it("beyondWhatWasShown refuses more of anything, and accepts less [OFF-2]", () => {
    const plan = (change: (plan: PurgePlan) => void = () => undefined): PurgePlan => {
      const made: PurgePlan = {
        ...{ schema: "svc.federation.purge_plan.v1", run: "0".repeat(32), partner: PARTNER, at: AT },
        media: {
          ...{ purge: true, kept_in_quarantine: 0, before_ms: 6, other_files: 3, is_whole: true },
          files: [{ media_id: "one", quarantined: false }],
        },
        rooms: [
          {
            ...{ room: ROOM, how: "history", local_members: 1, other_servers: [] },
            events: { own: 1, partner: 2, others: 3 },
          },
        ],
        staying: [],
        digest: `sha256:${"0".repeat(64)}`,
      };
      change(made);
      return made;
    };
    const room = (made: PurgePlan) => made.rooms[0] as PurgePlan["rooms"][number];
    const more: ((made: PurgePlan) => void)[] = [
      (made) => made.media.files.push({ media_id: "two", quarantined: false }),
      (made) => made.media.files.splice(0, 1, { media_id: "one", quarantined: true }),
      (made) => Object.assign(made.media, { other_files: 4 }),
      (made) => Object.assign(room(made), { how: "room" }),
      (made) => Object.assign(room(made).events, { own: 2 }),
      (made) => Object.assign(room(made).events, { others: 4 }),
      (made) => Object.assign(room(made), { local_members: 2 }),
      (made) => room(made).other_servers.push("third.example"),
      (made) => made.rooms.push({ ...room(made), room: "!other:harbour.example" }),
    ];
    for (const [index, change] of more.entries()) {
      assert.equal(beyondWhatWasShown(plan(), plan(change)).length, 1, String(index));
      assert.deepEqual(beyondWhatWasShown(plan(change), plan(change)), []);
    }
    assert.deepEqual(
      beyondWhatWasShown(
        plan(),
        plan((made) => made.rooms.splice(0)),
      ),
      [],
    );
    assert.deepEqual(
      beyondWhatWasShown(
        plan(),
        plan((made) => made.media.files.splice(0)),
      ),
      [],
    );
  });
});
