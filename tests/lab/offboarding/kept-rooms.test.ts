// A removal that keeps shared rooms read-only, and the re-admission that opens them again: what was said meanwhile,
// counted and read by the people themselves. Then one that was cut in the wrong order: rooms whose memberships
// cannot be mended are named, and replaced.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { after, before, describe, test } from "node:test";
import { stringify } from "yaml";
import { systemClock } from "../../../src/domain/clock.ts";
import type { EventId, RoomId } from "../../../src/domain/identifiers.ts";
import { editFile } from "../../../src/federation/change/edit-file.ts";
import type { TouchedRoom } from "../../../src/federation/readmission/readmission.ts";
import { SOURCES } from "../../../src/lab/break-glass/scene.ts";
import { changeRegistry } from "../../../src/lab/configuration/control-repository.ts";
import { type Lab, readLab } from "../../../src/lab/lab.ts";
import { labPaths } from "../../../src/lab/layout.ts";
import type { MatrixUser } from "../../../src/lab/matrix-user.ts";
import type { Offboarded } from "../../../src/lab/offboard/offboard.ts";
import { Operator } from "../../../src/lab/offboard/operator.ts";
import { openRun } from "../../../src/lab/offboard/private-record.ts";
import { type CompleteOrganisation, partnerOf } from "../../../src/lab/organisations.ts";
import { progressOn } from "../../../src/lab/progress.ts";
import { absenceIn, meanwhileIn } from "../../../src/lab/readmit/meanwhile.ts";
import type { Readmitted } from "../../../src/lab/readmit/readmit.ts";
import { waitUntilReconciled } from "../../../src/lab/reconciled.ts";
import { personOf, readSeed, roomOf, type Seed } from "../../../src/lab/seed/seed.ts";
import { Fed } from "../../support/fed.ts";

const ENTRY = "registry/partners/org-b.yaml";

describe("rooms that a removal keeps", () => {
  let fed: Fed;
  let lab: Lab;
  let seed: Seed;
  /** Said while the partner was removed, by whom, and where. */
  const said: { by: CompleteOrganisation; in: RoomId; event: EventId }[] = [];
  /** A room of org A's out of which nobody can take org B's person. */
  let unclosable: RoomId;

  before(async () => {
    fed = new Fed();
    await fed.up("--with-witness");
    const found = readLab(labPaths(join(fed.state, "lab", "default")));
    const seeded = found === undefined ? undefined : readSeed(found);
    assert.ok(found !== undefined && seeded !== undefined);
    [lab, seed] = [found, seeded];
  });
  after(async () => {
    await fed.good("fed:down", "--purge");
    fed.remove();
  });

  const person = (of: CompleteOrganisation): MatrixUser => personOf(lab, seed, of, SOURCES);
  const room = (of: CompleteOrganisation) => (roomOf(seed, of)?.roomId ?? assert.fail()) as RoomId;
  const at = (id: RoomId, rest: string) => `/rooms/${encodeURIComponent(id)}/${rest}`;
  const text = (body: string) => ({ msgtype: "m.text", body });

  async function until(isSo: () => Promise<boolean>, what: string): Promise<void> {
    for (const deadline = systemClock.now() + 60_000; !(await isSo()); await systemClock.sleep(300)) {
      assert.ok(systemClock.now() < deadline, what);
    }
  }

  /** Has an invited person of org B come in. */
  async function bring(ours: MatrixUser, theirs: MatrixUser, id: RoomId): Promise<void> {
    await until(async () => (await theirs.join(id, [lab.serverNames["org-a"]])).status === 200, "no join");
    await until(async () => (await ours.members(id)).includes(theirs.userId), "the join did not arrive");
  }

  /** The text of an event as a person's own homeserver has it; undefined when there is none. */
  async function read(reader: CompleteOrganisation, id: RoomId, event: EventId): Promise<unknown> {
    const { body } = await person(reader).request("GET", at(id, `event/${encodeURIComponent(event)}`));
    return (body["content"] as { body?: unknown } | undefined)?.body;
  }

  test("RDM-1: while the partner is removed its rooms are kept read-only, and it is out of them", async () => {
    const [ours, theirs] = [person("org-a"), person("org-b")];
    unclosable = await ours.createRoom({
      ...{
        preset: "private_chat",
        room_version: "10",
        name: "Nobody is banned here",
        invite: [theirs.userId],
      },
      power_level_content_override: {
        users: { [ours.userId]: 100, [theirs.userId]: 100 },
        ...{ ban: 101, events: { "m.room.server_acl": 101 } },
      },
    });
    await bring(ours, theirs, unclosable);
    const removed = JSON.parse(
      await fed.good("fed:offboard", "PARTNER=org-b", "--rooms", "keep", "--json"),
    ) as Offboarded;
    assert.ok(removed.holds && removed.verified.drawbridge && removed.verified.foreign);
    for (const [host, guest] of [
      ["org-a", "org-b"],
      ["org-b", "org-a"],
    ] as const) {
      const levels = await person(host).call("GET", at(room(host), "state/m.room.power_levels"));
      assert.ok(Number(levels["events_default"]) >= 50, `${host}'s room is read-only`);
      const { status } = await person(guest).request(
        "PUT",
        at(room(host), "send/m.room.message/banned"),
        text("From outside"),
      );
      assert.equal(status, 403, `${guest}'s own homeserver knows that it is banned`);
      for (const number of [1, 2, 3]) {
        const event = await person(host).send(room(host), text(`Among ourselves ${number}`));
        said.push({ by: host, in: room(host), event });
      }
    }
    for (const by of ["org-b", "org-b", "org-a"] as const) {
      const event = await person(by).send(unclosable, text(`${by} meanwhile`));
      said.push({ by, in: unclosable, event });
    }
  });

  test("RDM-1: reopened, its rooms give back what was said meanwhile, counted truthfully, and a question is answered", async () => {
    const { code, stdout, stderr } = await fed.task("fed:readmit", "--rooms", "reopen", "--json");
    assert.equal(code, 0, stderr);
    const { answered, reopened, rooms, choice } = JSON.parse(stdout) as Readmitted;
    assert.equal(choice, "reopen");
    for (const host of ["org-a", "org-b"] as const) {
      // Its own two, plain and encrypted; and whoever was there first, the one in which nobody is banned.
      assert.match(stderr, new RegExp(`${host}: Rooms \\(reopen\\): [23] kept, 0 gone before`));
      assert.ok(stderr.includes(`${host}: ${room(host)} is opened again: the partner can read back`), stderr);
      assert.equal(rooms.find(({ organisation }) => organisation === host)?.room, room(host));
    }
    assert.deepEqual(
      answered.map(({ audit }) => audit.outcome),
      ["completed", "completed"],
    );
    for (const host of ["org-a", "org-b"] as const) {
      const found = reopened.find((one) => one.room === room(host)) ?? assert.fail(host);
      assert.equal(found.cameIn, 0, "its people were banned before, and could say nothing");
      assert.ok(
        found.readBack >= 3 && found.readBack + found.emptied <= found.saidByOurs,
        JSON.stringify(reopened),
      );
      for (const { event } of said.filter((one) => one.in === room(host))) {
        assert.match(String(await read(partnerOf(host), room(host), event)), /^Among ourselves/);
      }
    }

    // Where its person could not be banned, what either side said comes in behind what it says next.
    const [ours, theirs] = [person("org-a"), person("org-b")];
    for (const by of ["org-b", "org-a"] as const) {
      const next = await person(by).send(unclosable, text("Partners again"));
      const reads = (event: EventId) => read(partnerOf(by), unclosable, event);
      await until(async () => (await reads(next)) !== undefined, `${by}'s next event is lost`);
      for (const { event } of said.filter((one) => one.in === unclosable && one.by === by)) {
        assert.equal(await reads(event), `${by} meanwhile`);
      }
    }
    const absence = (await absenceIn(room("org-a"), ours, theirs)) ?? assert.fail("it was never banned");
    const counted = await meanwhileIn(unclosable, ours, theirs, absence);
    assert.ok(counted.cameIn >= 2 && counted.readBack >= 1, JSON.stringify(counted));
  });

  test("RDM-1: cut in the wrong order, rooms whose memberships cannot be mended are named, and replaced", async () => {
    const operator = new Operator(lab, "org-a");
    const [ours, theirs] = [person("org-a"), person("org-b")];
    // Without the witness, which would pass the bans on.
    const shared = await ours.createRoom({ preset: "private_chat", name: "Of two", invite: [theirs.userId] });
    await until(
      async () => (await theirs.join(shared, [lab.serverNames["org-a"]])).status === 200,
      "no join",
    );
    await until(async () => (await ours.members(shared)).includes(theirs.userId), "the join did not arrive");

    // By hand, and before anything else.
    await changeRegistry(lab, "org-a", "Cut org-b off", systemClock, (registry) => {
      const edit = { path: ["planes", "transport"], value: "closed" };
      return new Map([...registry, [ENTRY, editFile(registry.get(ENTRY) ?? "", [edit])]]);
    });
    await waitUntilReconciled(lab, systemClock, progressOn(process.stderr, systemClock));
    const meanwhile = await theirs.send(shared, text("org-b meanwhile"));

    const words = ["next", "--as", operator.probeFile, "--ahead", "partner_silent"];
    await openRun(operator, { lab, seed, kind: "emergency", now: systemClock.now() });
    const stages: unknown[] = [];
    for (let times = 0; times < 15 && stages.at(-1) !== "transport"; times++) {
      const { said: did } = await operator.type("offboarding", ...words);
      stages.push((did as { stage: unknown }).stage);
    }
    assert.deepEqual(
      stages.filter((stage, index) => stages.indexOf(stage) === index),
      [null, "a2a_stop", "a2a_discovery", "room", "policy_border", "transport"],
    );
    await operator.must("offboarding", "abort", "--reason", "partner_silent");

    const { issuer, clientSecret, federation } = lab.paths.organisation("org-a");
    writeFileSync(clientSecret("org-b-bridge-9"), `${"s".repeat(43)}\n`, { mode: 0o600 });
    const fresh = join(federation, "fresh-after-emergency.yaml");
    const named = clientSecret("org-b-bridge-9").slice(issuer.length + 1);
    writeFileSync(fresh, stringify({ version: 1, azp: "org-b-bridge-9", clientSecret: { file: named } }));
    const reopen = ["org-b", "--rooms", "reopen"];
    await operator.must("readmission", "open", "org-b", "--gate", "CHG-9", "--fresh", fresh);
    await operator.must("readmission", "next", ...reopen);
    const plan = (await operator.must("readmission", "plan", ...reopen)) as { touched: TouchedRoom[] };
    const planned = plan.touched.find((one) => one.room === shared);
    assert.deepEqual([planned?.state, planned?.mendable], ["kept", "no"], "it is named before the step");
    assert.equal((await theirs.members(shared)).includes(theirs.userId), true, "it never learned of its ban");

    const { code, said: step, stderr } = await operator.type("readmission", "next", ...reopen);
    assert.equal(code, 0, stderr);
    assert.ok(stderr.includes(`${shared} is replaced: the partner's server does not hold its bans`), stderr);
    const { touched } = (step as { readmission: { touched: TouchedRoom[] } }).readmission;
    const replaced = touched.find((one) => one.room === shared) ?? assert.fail();
    assert.deepEqual([replaced.state, replaced.mendable], ["replaced", "no"]);
    const instead = replaced.replacement as RoomId;
    assert.deepEqual(await ours.members(instead), [ours.userId]);
    assert.equal(await read("org-a", shared, meanwhile), undefined, "what it said meanwhile stays apart");
  });
});
