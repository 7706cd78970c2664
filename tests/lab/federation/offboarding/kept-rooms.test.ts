// A removal that keeps shared rooms read-only, while a device of the removed partner listens for keys; and the
// re-admission that opens them again, with the messages of the meantime counted and read by the people themselves. Then
// a removal whose planes were closed in the wrong order, signed to its end by both: rooms whose memberships cannot be
// repaired are named, and replaced.
import assert from "node:assert/strict";
import { join } from "node:path";
import process from "node:process";
import { after, before, describe, it } from "node:test";
import { changeRegistry } from "../../../../lab/configuration/control-repository.ts";
import { EncryptingUser } from "../../../../lab/encrypting-user/encrypting-user.ts";
import { ghostFor } from "../../../../lab/endpoints.ts";
import { type Lab, readLab, SOURCES } from "../../../../lab/lab.ts";
import { labPaths } from "../../../../lab/layout.ts";
import type { MatrixUser, RoomEvent } from "../../../../lab/matrix-user.ts";
import { Operator } from "../../../../lab/observe/operator.ts";
import { offboard } from "../../../../lab/offboard/offboard.ts";
import { declareRooms, openRun } from "../../../../lab/offboard/open.ts";
import { verify } from "../../../../lab/offboard/verify.ts";
import { removeBetween } from "../../../../lab/offboard/workflow.ts";
import { type CompleteOrganisation, partnerOf, TRAITS } from "../../../../lab/organisations.ts";
import { progressOn } from "../../../../lab/progress.ts";
import { absenceIn, countMessages } from "../../../../lab/readmit/messages-while-removed.ts";
import type { Readmitted } from "../../../../lab/readmit/readmit.ts";
import { personOf, readSeed, roomOf, type Seed } from "../../../../lab/seed/seed-file.ts";
import { waitUntilReconciled } from "../../../../lab/status/federation.ts";
import { systemClock } from "../../../../src/domain/clock.ts";
import type { EventId, GhostMxid, RoomId } from "../../../../src/domain/identifiers.ts";
import type { TouchedRoom } from "../../../../src/federation/readmission/readmission.ts";
import { editYaml } from "../../../../src/runtime/edit-yaml.ts";
import { Fed } from "../../../support/lab-session.ts";

const progress = progressOn(process.stderr, systemClock);
const ENTRY = "registry/partners/org-b.yaml";

describe("kept rooms", () => {
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

    interface Devices {
      readonly ours: EncryptingUser;
      readonly theirs: EncryptingUser;
      readonly ghost: GhostMxid;
      readonly room: RoomId;
    }

    /** Asks org A's ghost in the encrypted room; its answer as it stands there, and as org A's person reads it. */
    async function askEncrypted({ ours, ghost, room: id }: Devices) {
      await ours.sync(id, undefined, 0);
      await ours.send(id, {
        ...text(`${ghost}: ${TRAITS["org-a"].sampleQuestion}`),
        "m.mentions": { user_ids: [ghost] },
      });
      let read: RoomEvent | undefined;
      await until(async () => {
        const { events } = await ours.sync(id, "further", 1_000);
        read ??= events.find(({ sender, type }) => sender === ghost && type === "m.room.message");
        return read !== undefined;
      }, "no answer that can be read");
      const answer = read ?? assert.fail();
      assert.equal(answer.encrypted, true);
      const sealed = await person("org-a").call(
        "GET",
        at(id, `event/${encodeURIComponent(answer.event_id)}`),
      );
      return { sealed: sealed as unknown as RoomEvent, body: answer.content["body"] };
    }

    /** A device of each organisation's person; while they are partners, org A's ghost gives keys to both. */
    async function sharedKeys(): Promise<Devices> {
      const [ours, theirs] = await Promise.all(
        (["org-a", "org-b"] as const).map((name) => EncryptingUser.logIn(lab, seed, name, SOURCES)),
      );
      assert.ok(ours !== undefined && theirs !== undefined);
      const encrypted = roomOf(seed, "org-a", "encrypted")?.roomId ?? assert.fail();
      const devices = { ours, theirs, ghost: ghostFor(lab, "org-a", "org-a"), room: encrypted as RoomId };
      await until(() => ours.knows(theirs.userId, theirs.deviceId), "the device does not become known");
      const { sealed, body } = await askEncrypted(devices);
      let opened: RoomEvent | undefined;
      await until(async () => {
        opened = await theirs.open(devices.room, sealed);
        return opened !== undefined;
      }, "the partner's device cannot read what it may");
      assert.equal(opened?.content["body"], body);
      assert.ok(theirs.toDevice.some(({ sender }) => sender === devices.ghost));
      return devices;
    }

    /** Between the rooms' stage and the next: an answer that a former member's device gets no key of. */
    async function noKeyComes(devices: Devices): Promise<void> {
      const { theirs, ghost, room: id } = devices;
      // Who keeps a room read-only says who may speak in it; a ghost may not by itself.
      const levels = await person("org-a").call("GET", at(id, "state/m.room.power_levels"));
      const users = {
        ...(levels["users"] as Record<string, number>),
        [ghost]: Number(levels["events_default"]),
      };
      await person("org-a").call("PUT", at(id, "state/m.room.power_levels"), { ...levels, users });
      const before = theirs.toDevice.length;
      const { sealed } = await askEncrypted(devices);
      assert.equal(sealed.type, "m.room.encrypted");
      // Sent behind the answer, from the same homeserver: whatever went before it has come when it has.
      const path = `/sendToDevice/test.drawbridge.marker/${systemClock.now()}`;
      const messages = { [theirs.userId]: { [theirs.deviceId]: {} } };
      await person("org-a").call("PUT", path, { messages });
      await until(async () => {
        assert.equal(await theirs.open(id, sealed), undefined);
        return theirs.toDevice.some(({ type }) => type === "test.drawbridge.marker");
      }, "nothing at all comes to the device any more");
      const came = theirs.toDevice.slice(before).filter(({ sender }) => sender === ghost);
      assert.deepEqual(came, [], "the ghost has sent its device something");
    }

    it("a removed partner is out of the kept read-only rooms, and its device gets no key of what a ghost says there [ENC-7] [RDM-1]", async () => {
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
      const devices = await sharedKeys();
      let listened: Promise<void> | undefined;
      const removed = await offboard(
        {
          ...{ lab, seed, org: "org-a", kind: "full", rooms: "keep" },
          // The rooms are closed at both, and everything else would still let a key through.
          opening: {
            stage: "policy_border",
            wait: async () => {
              listened = noKeyComes(devices);
              await listened;
            },
          },
        },
        progress,
      );
      await Promise.all([devices.ours, devices.theirs].map((device) => device.logOut()));
      assert.ok(listened !== undefined, "nobody has listened for keys");
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

    it("a reopened room returns what was said meanwhile, counted exactly, and a question is answered [RDM-1]", async () => {
      const { code, stdout, stderr } = await fed.task("fed:readmit", "--rooms", "reopen", "--json");
      assert.equal(code, 0, stderr);
      const { answered, reopened, rooms, choice } = JSON.parse(stdout) as Readmitted;
      assert.equal(choice, "reopen");
      for (const host of ["org-a", "org-b"] as const) {
        // Its own two, plain and encrypted; and whoever was there first, the one in which nobody is banned.
        assert.match(stderr, new RegExp(`${host}: Rooms \\(reopen\\): [23] kept, 0 gone before`));
        assert.ok(
          stderr.includes(`${host}: ${room(host)} is opened again: the partner can read back`),
          stderr,
        );
        assert.equal(rooms.find(({ organisation }) => organisation === host)?.room, room(host));
      }
      assert.deepEqual(
        answered.map(({ audit }) => audit.outcome),
        ["completed", "completed", "completed"],
      );
      for (const host of ["org-a", "org-b"] as const) {
        const found = reopened.find((one) => one.room === room(host)) ?? assert.fail(host);
        assert.equal(found.cameIn, 0, "its people were banned before, and could say nothing");
        assert.ok(
          found.isWhole && found.readable >= 3 && found.readable + found.emptied <= found.saidByOurs,
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
      const absence = await absenceIn(room("org-a"), ours, theirs);
      assert.ok(typeof absence === "object", "it was never banned");
      const counted = await countMessages(unclosable, ours, theirs, absence);
      assert.ok(counted.cameIn >= 2 && counted.readable >= 1, JSON.stringify(counted));
    });

    it("a re-admission names and replaces rooms whose memberships cannot be repaired after planes were closed in the wrong order [RDM-1]", async () => {
      const operator = new Operator(lab, "org-a");
      const [ours, theirs] = [person("org-a"), person("org-b")];
      await declareRooms(lab, "keep");
      // Without the witness, which would pass the bans on.
      const shared = await ours.createRoom({
        preset: "private_chat",
        name: "Of two",
        invite: [theirs.userId],
      });
      await until(
        async () => (await theirs.join(shared, [lab.serverNames["org-a"]])).status === 200,
        "no join",
      );
      await until(
        async () => (await ours.members(shared)).includes(theirs.userId),
        "the join did not arrive",
      );

      // By hand, and before anything else.
      await changeRegistry(lab, "org-a", "Cut org-b off", (registry) => {
        const edit = { path: ["planes", "transport"], value: "closed" };
        return new Map([...registry, [ENTRY, editYaml(registry.get(ENTRY) ?? "", [edit])]]);
      });
      await waitUntilReconciled(lab, progress);
      const meanwhile = await theirs.send(shared, text("org-b meanwhile"));

      // Then as it should have been from the beginning, and signed by both.
      const partner = new Operator(lab, "org-b");
      const opening = { lab, seed, kind: "emergency", now: systemClock.now() } as const;
      const run = await openRun(operator, opening);
      assert.equal(await openRun(partner, { ...opening, join: run }), run);
      const stages: string[] = [];
      const record = await removeBetween([operator, partner], run, {
        closed: ({ organisation, stage }) => stages.push(`${organisation} ${stage}`),
        contained: () => undefined,
        step: () => undefined,
        note: (line) => progress.note(line),
      });
      assert.equal(new Set(stages).size, 12, stages.join(", "));
      const verified = await verify(lab, record, [operator, partner]);
      assert.ok(verified.drawbridge && verified.foreign, verified.foreignSaid);

      assert.equal(
        (await theirs.members(shared)).includes(theirs.userId),
        true,
        "it never learned of its ban",
      );
      const { code, stdout, stderr } = await fed.task("fed:readmit", "--rooms", "reopen", "--json");
      assert.equal(code, 0, stderr);
      assert.ok((JSON.parse(stdout) as Readmitted).holds);
      assert.ok(
        stderr.includes(`${shared} is replaced: the partner's server does not hold its bans`),
        stderr,
      );
      const { touched } = (await operator.mustRun("readmission", "status", "org-b")) as {
        touched: TouchedRoom[];
      };
      const replaced = touched.find((one) => one.room === shared) ?? assert.fail();
      assert.deepEqual([replaced.state, replaced.repairable], ["replaced", "no"]);
      assert.deepEqual(await ours.members(replaced.replacement as RoomId), [ours.userId]);
      assert.equal(await read("org-a", shared, meanwhile), undefined, "what it said meanwhile stays apart");
    });
  });
});
