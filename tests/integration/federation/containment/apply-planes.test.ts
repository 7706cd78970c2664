// The planes of an act, one by one: closed or opened in order, and each observed.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { DrawbridgeError } from "../../../../src/domain/errors.ts";
import type { ActResult } from "../../../../src/federation/containment/contain-or-restore.ts";
import { applyPlanes } from "../../../../src/federation/containment/contain-or-restore.ts";
import { federationStatus } from "../../../../src/federation/containment/federation-status.ts";
import type { Federation } from "../../../../src/federation/reconcile/context.ts";
import { runPass } from "../../../../src/federation/reconcile/pass.ts";
import { isSettled } from "../../../../src/records/conditions/evaluate.ts";
import {
  AT,
  allowedSigners,
  commitOnTop,
  commitRegistry,
  LIGHTHOUSE,
  signingKey,
} from "../../../support/control-repository.ts";
import { setPlane } from "../../../support/edit-partner.ts";
import { HastyClock } from "../../../support/readmission.ts";
import { registryFiles } from "../../../support/sample-files.ts";
import { temporaryFolder } from "../../../support/temporary.ts";
import { control } from "./containment-repository.ts";

const SERVER = "matrix.lighthouse.example:8448";

describe("applyPlanes", () => {
  it("closes planes 5, 4, 2 and 3, opens them in reverse, and probes each from inside [CON-1]", async (t) => {
    const { contain, restore, federation, parts, clock } = await control(t);
    await runPass(federation);
    const apply = async (result: ActResult) => {
      parts.applied.length = 0;
      return applyPlanes(federation, result.act, result.partner);
    };
    const closed = await apply(await contain());
    assert.deepEqual(parts.applied, ["gateway", "card", "rooms", "border"]);
    assert.ok(closed.every(({ done, evidence }) => done && evidence.length > 0));
    // No room is shared, and the rooms plane shows that: there was nothing to be closed.
    const verdicts = (results: typeof closed) => results.map(({ plane, verdict }) => `${plane} ${verdict}`);
    assert.deepEqual(verdicts(closed), ["gateway met", "card met", "rooms not_applicable", "border met"]);
    parts.rooms.push("!harbour:harbour.example");
    assert.deepEqual(verdicts(await apply(await contain()))[2], "rooms met");
    parts.rooms.length = 0;
    assert.deepEqual(
      (await federationStatus(federation)).contained.map(({ name }) => name),
      ["dredger", "lighthouse"],
    );
    await clock.advance(1_000);
    assert.ok((await apply(await restore())).every(({ done }) => done));
    assert.deepEqual(parts.applied, ["border", "rooms", "card", "gateway"]);
  });

  it("keeps the time at which a plane was first closed, and reports a later repair beside it [CON-1]", async (t) => {
    const { contain, restore, federation, parts, folder, clock } = await control(t);
    await runPass(federation);
    parts.onApply = () => clock.advance(5);
    const apply = async (act = contain) => {
      const result = await act();
      return applyPlanes(federation, result.act, result.partner);
    };
    const times = (applied: Awaited<ReturnType<typeof apply>>) =>
      applied.map(({ plane, triedAt, at, repairedAt }) => [
        plane,
        ...[triedAt, at, repairedAt].map((time) => (time === null ? null : Date.parse(time) - AT)),
      ]);
    const closed = times(await apply());
    assert.equal(parts.applied.at(-1), "rooms", "behind the border they are looked at again");
    assert.deepEqual(closed, [
      ["gateway", 5, 5, null],
      ["card", 10, 10, null],
      ["rooms", 15, 15, null],
      ["border", 20, 20, null],
    ]);

    // The second look behind the border finds one who came in the meantime.
    await apply(restore);
    await clock.advance(1_000 - (clock.now() - AT));
    const intent = join(folder, "rooms/rooms.json");
    const opened = readFileSync(intent, "utf8");
    parts.onApply = async (plane) => {
      await clock.advance(5);
      if (plane === "border") writeFileSync(intent, opened);
    };
    const repaired = [
      ["gateway", 1_005, 1_005, null],
      ["card", 1_010, 1_010, null],
      ["rooms", 1_015, 1_015, 1_025],
      ["border", 1_020, 1_020, null],
    ];
    assert.deepEqual(times(await apply()), repaired);
    assert.deepEqual(times(await apply()), repaired, "another observation changes no time");
    const { planes } = await federationStatus(federation);
    const rooms = planes.find(({ plane }) => plane === "rooms");
    assert.deepEqual(
      [rooms?.at, rooms?.repairedAt],
      [new Date(AT + 1_015).toISOString(), new Date(AT + 1_025).toISOString()],
    );

    // Rooms that are not whole at the first look are in force since the second, and were told in their turn.
    await apply(restore);
    await clock.advance(2_000 - (clock.now() - AT));
    const outOfReach = [{ partner: SERVER, subject: "!room", reason: "refused", hint: "" }];
    parts.instead.set("rooms", async () => ({ state: "incomplete", changed: true, outOfReach }));
    parts.onApply = async (plane) => {
      await clock.advance(5);
      if (plane === "border") parts.instead.delete("rooms");
    };
    assert.deepEqual(times(await apply())[2], ["rooms", 2_015, 2_025, null]);
  });

  it("closes again what somebody has opened by hand since [CON-1]", async (t) => {
    const { contain, federation, parts, folder, events } = await control(t);
    await runPass(federation);
    const policy = join(folder, "border/policy.json");
    const open = readFileSync(policy, "utf8");
    const apply = async () => applyPlanes(federation, "contain", (await contain()).partner);
    await apply();
    const closed = readFileSync(policy, "utf8");

    writeFileSync(policy, open);
    parts.applied.length = 0;
    assert.ok((await apply()).every(({ done }) => done));
    assert.equal(readFileSync(policy, "utf8"), closed);
    assert.deepEqual(parts.applied, ["border"]);
    assert.equal(events.filter(({ event }) => event === "drift").length, 1);

    // Where nothing is observed to drift, and a real part says that the partner passes.
    const { probe } = federation.planes.gateway;
    const says = { opened: true };
    Object.assign(federation.planes.gateway, {
      probe: async (...asked: Parameters<typeof probe>) =>
        (await probe(...asked)).map((item) =>
          says.opened ? { ...item, verdict: "open", reason: "azp_admitted" } : item,
        ),
    });
    parts.applied.length = 0;
    parts.onApply = async () => {
      says.opened = false;
    };
    assert.ok((await apply()).every(({ done }) => done));
    assert.equal(parts.applied[0], "gateway");
  });

  it("does not report a plane as closed when its record says so and a probe does not [CON-1]", async (t) => {
    const { contain, federation, parts } = await control(t);
    await runPass(federation);
    const { partner } = await contain();
    await applyPlanes(federation, "contain", partner);
    const down = () => Promise.reject(new DrawbridgeError("homeserver_unavailable", "down"));
    Object.assign(federation.planes.border, { drift: down });
    parts.instead.set("border", async () => ({
      ...{ state: "deferred", reason: "homeserver_unavailable", retryAfterMs: 1 },
    }));
    const border = (await applyPlanes(federation, "contain", partner)).find(
      ({ plane }) => plane === "border",
    );
    assert.deepEqual([border?.done, border?.reason], [false, "homeserver_unavailable"]);
  });

  it("does not count a plane as closed of which nothing is known, or that nobody manages [CON-1]", async (t) => {
    const { contain, federation } = await control(t);
    await runPass(federation);
    const { probe } = federation.planes.border;
    Object.assign(federation.planes.border, {
      probe: async (...asked: Parameters<typeof probe>) =>
        (await probe(...asked)).map((item) => ({ ...item, verdict: "unknown", reason: "not_running" })),
    });
    const context: Federation = { ...federation, parts: ["homeserver", "bridge"] };
    Object.assign(federation.planes.gateway, { probe: async () => [] });
    const applied = await applyPlanes(context, "contain", (await contain()).partner);
    assert.deepEqual(
      applied.map((one) => [one.plane, one.verdict, one.done, isSettled(one)]),
      [
        ["gateway", "unmanaged", false, true],
        ["card", "met", true, true],
        ["rooms", "not_applicable", true, true],
        ["border", "unknown", false, false],
      ],
    );
    assert.equal(applied[3]?.reason, "not_running");
  });

  it("does not report a restored plane as open while a part keeps the partner out [CON-1]", async (t) => {
    const { contain, restore, federation } = await control(t);
    await runPass(federation);
    await applyPlanes(federation, "contain", (await contain()).partner);
    const { probe } = federation.planes.border;
    Object.assign(federation.planes.border, {
      probe: async (...asked: Parameters<typeof probe>) =>
        (await probe(...asked)).map((item) =>
          item.probe === "policy_check" ? { ...item, verdict: "closed", reason: "server_not_allowed" } : item,
        ),
    });
    const context: Federation = { ...federation, clock: new HastyClock(AT) };
    const applied = await applyPlanes(context, "restore", (await restore()).partner);
    assert.deepEqual(
      applied.map((one) => [one.plane, one.verdict, one.reason]),
      [
        ["border", "not_met", "server_not_allowed"],
        ["rooms", "not_applicable", null],
        ["card", "met", null],
        ["gateway", "met", null],
      ],
    );
  });

  it("ends where another commit has taken the act back, and the same command does it again [CON-1]", async (t) => {
    const { contain, restore, federation, parts } = await control(t);
    await runPass(federation);
    const acts = { contain, restore };
    for (const [act, opposite, first] of [
      ["contain", "restore", "gateway"],
      ["restore", "contain", "border"],
    ] as const) {
      const { partner } = await acts[act]();
      parts.onApply = async () => {
        parts.onApply = async () => {};
        await acts[opposite]();
      };
      const reported: string[] = [];
      const applied = applyPlanes(federation, act, partner, ({ plane }) => reported.push(plane));
      await assert.rejects(applied, { code: "head_refused" });
      assert.deepEqual(reported, [first], "what was observed before that commit");
      const again = await applyPlanes(federation, act, (await acts[act]()).partner);
      assert.ok(again.every(({ done }) => done));
    }
  });

  it("leaves a plane closed that the registry declares closed, also in a restore [CON-1]", async (t) => {
    const { contain, restore, federation, repository } = await control(t);
    const text = setPlane(registryFiles().get(LIGHTHOUSE) ?? "", "gateway", "closed");
    await commitRegistry(repository, new Map([[LIGHTHOUSE, text]]));
    await runPass(federation);
    await applyPlanes(federation, "contain", (await contain()).partner);
    const applied = await applyPlanes(federation, "restore", (await restore()).partner);
    const names = (plane: string) =>
      applied.find((one) => one.plane === plane)?.conditions.map(({ condition }) => condition);
    assert.ok(applied.every(({ done }) => done));
    assert.deepEqual(names("gateway"), ["in_force", "partner_not_rendered", "token_refused"]);
    assert.deepEqual(names("border"), ["in_force", "policy_admits_partner"]);
  });

  it("what is out of reach because of another partner keeps none from being closed or restored [CON-1]", async (t) => {
    const { contain, restore, federation, parts } = await control(t);
    await runPass(federation);
    const left = { partner: "matrix.other.example", subject: "!room", reason: "no_power", hint: "Get it." };
    parts.instead.set("rooms", async () => ({ state: "incomplete", changed: true, outOfReach: [left] }));
    parts.rooms.push("!harbour:harbour.example");
    for (const act of [contain, restore]) {
      const { act: name, partner } = await act();
      const applied = await applyPlanes(federation, name, partner);
      assert.ok(applied.every(({ done }) => done));
      const rooms = applied.find(({ plane }) => plane === "rooms");
      assert.deepEqual([rooms?.outcome, rooms?.outOfReach], ["incomplete", []]);
    }
  });

  it("names a plane that does not close, and closes the others [CON-1]", async (t) => {
    const { contain, federation, parts } = await control(t);
    await runPass(federation);
    const left = { partner: SERVER, subject: "!room", reason: "no_power", hint: "Get it." };
    parts.instead.set("rooms", async () => ({ state: "incomplete", changed: true, outOfReach: [left] }));
    parts.instead.set("gateway", () => Promise.reject(new Error("down")));
    const { partner } = await contain();
    const applied = await applyPlanes(federation, "contain", partner);
    assert.deepEqual(
      applied.map(({ plane, done, outcome }) => [plane, done, outcome]),
      [
        ["gateway", false, "failed"],
        ["card", true, "in_force"],
        ["rooms", false, "incomplete"],
        ["border", true, "in_force"],
      ],
    );
    assert.deepEqual(applied[2]?.outOfReach, [left]);
    // The same again, when the parts are back: only what was left is applied.
    parts.instead.clear();
    parts.applied.length = 0;
    const again = await contain();
    assert.equal(again.record, undefined);
    assert.ok((await applyPlanes(federation, "contain", again.partner)).every(({ done }) => done));
    assert.deepEqual(parts.applied, ["gateway", "rooms"]);
  });

  it("contain leaves out a head that was refused after the act was taken up, and closes what is left [CON-1]", async (t) => {
    const keys = temporaryFolder(t);
    const mine = signingKey(keys, "mine");
    const allowedSignersFile = allowedSigners(join(keys, "allowed"), mine.allowed);
    const settings = { allowedSignersFile, signingKeyFile: mine.file };
    const { contain, repository, federation, parts } = await control(t, { settings });
    await commitOnTop(repository, new Map([["README.md", "signed"]]), { signingKeyFile: mine.file });
    await runPass(federation);
    await contain();
    await runPass(federation, { plane: "gateway" });
    await commitOnTop(repository, new Map([["README.md", "unsigned"]]));
    parts.applied.length = 0;
    const { partner } = await contain();
    assert.ok((await applyPlanes(federation, "contain", partner)).every(({ done }) => done));
    assert.deepEqual(parts.applied, ["card", "rooms", "border"]);
    assert.equal((await contain()).record, undefined, "and nothing is left to be done");
  });

  it("closes the border although somebody goes on working on the rooms, and says that these are not closed [CON-1]", async (t) => {
    const { contain, federation, parts } = await control(t);
    await runPass(federation);
    const { partner } = await contain();
    const lock = await federation.state.tryLock("plane rooms");
    parts.applied.length = 0;
    const context: Federation = { ...federation, clock: new HastyClock(AT) };
    const applied = await applyPlanes(context, "contain", partner);
    assert.deepEqual(
      applied.map(({ plane, done }) => [plane, done]),
      [
        ["gateway", true],
        ["card", true],
        ["rooms", false],
        ["border", true],
      ],
    );
    assert.deepEqual(parts.applied, ["gateway", "card", "border"]);
    await lock?.release();
    assert.ok((await applyPlanes(federation, "contain", partner)).every(({ done }) => done));
  });
});
