// One act on a real repository: what is committed, and what each bad night ends in.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { DrawbridgeError } from "../../../src/domain/errors.ts";
import { setPlane } from "../../../src/federation/change/edit-partner.ts";
import { type ActResult, performAct } from "../../../src/federation/containment/act.ts";
import { applyPlanes } from "../../../src/federation/containment/apply-planes.ts";
import { ContainmentRecord } from "../../../src/federation/containment/containment-record.ts";
import { federationStatus } from "../../../src/federation/containment/status.ts";
import { CONTAINMENT_ORDER } from "../../../src/federation/plane-order.ts";
import { planeOfPath, renderAll } from "../../../src/federation/planes/render.ts";
import type { Federation } from "../../../src/federation/reconcile/context.ts";
import { runPass } from "../../../src/federation/reconcile/pass.ts";
import { loadRegistry } from "../../../src/federation/registry/load.ts";
import { plan } from "../../../src/federation/workflow/plan.ts";
import { CONTAIN } from "../../../src/federation/workflow/procedure.ts";
import { isSettled } from "../../../src/records/conditions/evaluate.ts";
import {
  AT,
  allowedSigners,
  changedPaths,
  commitOnTop,
  commitRegistry,
  controlRepository,
  LIGHTHOUSE,
  openControl,
  operatorGit,
  PILOTS,
  signingKey,
} from "../../support/control-repository.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { HastyClock } from "../../support/readmission.ts";
import { registryFiles } from "../../support/sample-files.ts";
import { temporaryFolder } from "../../support/temporary.ts";

const SERVER = "matrix.lighthouse.example:8448";

async function control(t: TestContext, options: { settings?: Readonly<Record<string, unknown>> } = {}) {
  const directory = temporaryFolder(t);
  const repository = await controlRepository(join(directory, "control"));
  const clock = new ManualClock(AT);
  const opened = await openControl(directory, repository, clock, options.settings);
  const { federation } = opened;
  const contain = (name = "lighthouse") => performAct(federation, "contain", name);
  const restore = (name = "lighthouse") => performAct(federation, "restore", name);
  const records = async () => {
    const files = await repository.read(await repository.requireHead(), ["records"]);
    return [...files.values()].map((text) => ContainmentRecord.parse(JSON.parse(text)));
  };
  /** Everything rendered is what the registry on the branch renders. */
  const assertWhole = async () => {
    const folders = ["registry", "rendered", "kubernetes"];
    const files = await repository.read(await repository.requireHead(), folders);
    const registry = loadRegistry(files);
    const wanted = renderAll(registry);
    const found = [...files].filter(([path]) => !path.startsWith("registry/"));
    assert.deepEqual(new Map(found.sort()), new Map([...wanted].sort()));
    return registry;
  };
  return { ...opened, directory, repository, clock, contain, restore, records, assertWhole };
}

function containedIn(registry: ReturnType<typeof loadRegistry>): string[] {
  return registry.partners.filter(({ partner }) => partner.contained).map(({ name }) => name);
}

describe("containing and restoring a partner", () => {
  it("contain makes one commit of flag, re-render and record, and restore reverts flag and render [CON-1]", async (t) => {
    const { repository, contain, restore, records, assertWhole, clock } = await control(t);
    const before = await repository.requireHead();
    const rendered = await repository.read(before, ["rendered", "kubernetes"]);
    const { revision, record, recordPath } = await contain(SERVER);
    assert.equal(await repository.head(), revision);
    assert.equal(operatorGit(repository.path, "rev-parse", `${revision}^`), before);
    assert.deepEqual(record, {
      schema: "svc.federation.containment.v1",
      act: "contain",
      server_name: SERVER,
      azp: "lighthouse-bridge",
      classification: "confidential",
      git_revision: before,
      timestamp: "2026-01-02T03:04:05.000Z",
      planes: ["gateway", "card", "rooms", "border"],
    });
    assert.equal(
      recordPath,
      "records/containment/20260102T030405.000Z-matrix.lighthouse.example_8448-contain.json",
    );
    assert.deepEqual(containedIn(await assertWhole()), ["dredger", "lighthouse"]);
    const changed = changedPaths(repository, before, revision);
    assert.ok(
      changed.includes("rendered/border/policy.json") && changed.includes("rendered/gateway/clients.yaml"),
    );
    assert.ok(!changed.some((path) => path.includes("transport")), "containment never touches the transport");

    await clock.advance(60_000);
    const restored = await restore();
    assert.deepEqual(containedIn(await assertWhole()), ["dredger"]);
    const after = await repository.read(restored.revision, ["rendered", "kubernetes"]);
    assert.deepEqual(after, rendered, "what is rendered is what it was before");
    assert.deepEqual(
      (await records()).map(({ act }) => act),
      ["contain", "restore"],
    );
  });

  it("contain writes no second record when the partner is contained already [CON-1]", async (t) => {
    const { contain, restore, records, repository } = await control(t);
    await restore();
    assert.deepEqual(await records(), []);
    await contain();
    const head = await repository.head();
    const again = await contain();
    assert.equal(again.record, undefined);
    assert.equal(await repository.head(), head);
    assert.equal((await records()).length, 1);
  });

  it("contain refuses an unknown partner with similar names, and the own server [CON-1]", async (t) => {
    const { contain, repository } = await control(t);
    const head = await repository.head();
    const hintOf = async (name: string) => {
      const error = await contain(name).then(
        () => assert.fail("it was taken"),
        (error: unknown) => error,
      );
      assert.ok(error instanceof DrawbridgeError);
      assert.equal(error.code, "usage");
      return `${error.message} ${error.hint}`;
    };
    assert.match(await hintOf("lighthosue"), /Did you mean lighthouse/);
    assert.match(await hintOf("matrix.lighthouse.example"), /Did you mean matrix\.lighthouse\.example:8448/);
    // `dredgers` is one edit from `dredger`, and others are further away: they are not offered.
    assert.match(await hintOf("dredgers"), /Did you mean dredger\?/);
    assert.match(await hintOf("nobody-at-all.test"), /no partner is called/);
    assert.match(await hintOf("\u001b[2Jx"), /no partner is called \?\[2Jx/);
    const own = loadRegistry(registryFiles()).organisation.serverName;
    assert.match(await hintOf(own), /own server/);
    assert.equal(await repository.head(), head);
  });

  it("concurrent containments make one record for one partner, and one for each of two [CON-1]", async (t) => {
    const one = await control(t);
    const other = await openControl(join(one.directory, "other state"), one.repository, one.clock);
    const act = (name: string, federation = one.federation) => performAct(federation, "contain", name);
    const same = await Promise.all([act("lighthouse"), act("lighthouse", other.federation)]);
    assert.equal(same.filter(({ record }) => record !== undefined).length, 1);
    assert.equal((await one.records()).length, 1);
    await one.clock.advance(1_000);
    await one.restore();
    await one.clock.advance(1_000);
    await Promise.all([act("lighthouse"), act("pilot-station", other.federation)]);
    assert.deepEqual(containedIn(await one.assertWhole()), ["dredger", "lighthouse", "pilot-station"]);
    assert.equal((await one.records()).length, 4);
  });

  it("contain puts another partner's broken file back to the last good revision [CON-1]", async (t) => {
    const { contain, restore, repository, federation, assertWhole } = await control(t);
    await runPass(federation);
    const good = await repository.requireHead();
    await commitOnTop(
      repository,
      new Map([
        [PILOTS, "version: 1\nallowed: everybody\n"],
        ["registry/partners/gull.yaml", "not: [valid\n"],
      ]),
    );
    await assert.rejects(restore("dredger"), { code: "head_refused" }, "a restore waits for a good registry");
    const { setAside } = await contain();
    assert.deepEqual(setAside, {
      reason: "registry_invalid",
      lastGood: good,
      paths: ["registry/partners/gull.yaml", PILOTS],
    });
    assert.deepEqual(containedIn(await assertWhole()), ["dredger", "lighthouse"]);
    assert.equal((await runPass(federation)).refusal, undefined);
  });

  it("contain uses the last good revision of the partner's own file when that is broken [CON-1]", async (t) => {
    const { contain, repository, federation, assertWhole } = await control(t);
    await runPass(federation);
    await commitOnTop(repository, new Map([[LIGHTHOUSE, "version: 1\n"]]));
    await contain(SERVER);
    assert.deepEqual(containedIn(await assertWhole()), ["dredger", "lighthouse"]);
  });

  it("contain puts all files back that are each valid and contradict one another [CON-1]", async (t) => {
    const { contain, repository, assertWhole } = await control(t);
    const twin = (registryFiles().get(PILOTS) ?? "").replace("azp: ", "azp: lighthouse-bridge # ");
    await commitOnTop(repository, new Map([["registry/partners/twin.yaml", twin]]));
    const { setAside } = await contain();
    assert.equal(setAside?.reason, "registry_invalid");
    assert.deepEqual(containedIn(await assertWhole()), ["dredger", "lighthouse"]);
  });

  it("contain renders and records when somebody has set the flag without rendering [CON-1]", async (t) => {
    const { contain, repository, assertWhole } = await control(t);
    const text = `${registryFiles().get(LIGHTHOUSE)}contained: true\n`;
    await commitRegistry(repository, new Map([[LIGHTHOUSE, text]]), { render: false });
    const { record } = await contain();
    assert.notEqual(record, undefined);
    assert.deepEqual(containedIn(await assertWhole()), ["dredger", "lighthouse"]);
  });

  it("contain leaves out what a head holds that may not be taken up [CON-1]", async (t) => {
    const keys = temporaryFolder(t);
    const mine = signingKey(keys, "mine");
    const allowedSignersFile = allowedSigners(join(keys, "allowed"), mine.allowed);
    const settings = { allowedSignersFile, signingKeyFile: mine.file };
    const { contain, restore, repository, federation, assertWhole } = await control(t, { settings });
    const base = await repository.requireHead();
    await commitOnTop(repository, new Map([["README.md", "unsigned"]]));
    await assert.rejects(contain(), { code: "head_refused" }, "nothing was ever good");
    operatorGit(repository.path, "update-ref", "refs/heads/main", base);
    await commitOnTop(repository, new Map([["README.md", "signed"]]), { signingKeyFile: mine.file });
    await runPass(federation);
    const good = await repository.requireHead();
    const evil = (registryFiles().get(PILOTS) ?? "").replaceAll("pilot", "evil");
    await commitRegistry(repository, new Map([["registry/partners/evil.yaml", evil]]));
    const unsigned = await repository.requireHead();
    await assert.rejects(restore("dredger"), { code: "head_refused" });
    const { revision, setAside } = await contain();
    assert.deepEqual(setAside, { reason: "head_refused", lastGood: good, paths: [] });
    const parents = operatorGit(repository.path, "log", "-1", "--format=%P", `${revision}^`);
    assert.equal(parents, `${good} ${unsigned}`, "a merge keeps what was refused in the history alone");
    const registry = await assertWhole();
    assert.deepEqual(containedIn(registry), ["dredger", "lighthouse"]);
    assert.ok(!registry.partners.some(({ name }) => name === "evil"));
    assert.equal((await runPass(federation)).refusal, undefined);
  });

  it("contain refuses to commit what the reconciler would refuse for its signature [CON-1]", async (t) => {
    const keys = temporaryFolder(t);
    const [mine, other] = [signingKey(keys, "mine"), signingKey(keys, "other")];
    const allowedSignersFile = allowedSigners(join(keys, "allowed"), mine.allowed);
    const refused = async (settings: Readonly<Record<string, string>>, message: RegExp) => {
      const { contain, repository, federation } = await control(t, {
        settings: { allowedSignersFile, ...settings },
      });
      await commitOnTop(repository, new Map([["README.md", "signed"]]), { signingKeyFile: mine.file });
      await runPass(federation);
      const head = await repository.head();
      await assert.rejects(contain(), { code: "config_invalid", message });
      assert.equal(await repository.head(), head);
      assert.equal((await runPass(federation)).refusal, undefined);
    };
    await refused({}, /signingKeyFile is not set; nothing was changed/);
    await refused({ signingKeyFile: other.file }, /the key of repository\.signingKeyFile is not among them/);
  });

  it("contain works when the branch was moved to another history [CON-1]", async (t) => {
    const { contain, repository, federation, assertWhole } = await control(t);
    await runPass(federation);
    const good = await repository.requireHead();
    operatorGit(
      repository.path,
      "update-ref",
      "refs/heads/main",
      operatorGit(repository.path, "commit-tree", "-m", "Anew", `${good}^{tree}`),
    );
    const { revision } = await contain();
    assert.ok(await repository.isAncestor(good, revision));
    assert.deepEqual(containedIn(await assertWhole()), ["dredger", "lighthouse"]);
    assert.equal((await runPass(federation)).refusal, undefined);
  });

  it("applyPlanes closes planes 5, 4, 2 and 3, opens them in reverse, and probes each from inside [CON-1]", async (t) => {
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

  it("applyPlanes keeps the time at which a plane was first closed, and reports a later repair beside it [CON-1]", async (t) => {
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

  it("applyPlanes closes again what somebody has opened by hand since [CON-1]", async (t) => {
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

    // Where nothing is seen to drift, and a real part says that the partner passes.
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

  it("applyPlanes does not report a plane as closed when its record says so and a probe does not [CON-1]", async (t) => {
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

  it("applyPlanes does not count a plane as closed of which nothing is known, or that nobody manages [CON-1]", async (t) => {
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

  it("applyPlanes does not report a restored plane as open while a part keeps the partner out [CON-1]", async (t) => {
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

  it("applyPlanes leaves a plane closed that the registry declares closed, also in a restore [CON-1]", async (t) => {
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

  it("plan shows what a containment changes on each plane, and changes nothing [CON-1]", async (t) => {
    const { repository, federation } = await control(t);
    const head = await repository.head();
    const { steps } = await plan(federation, CONTAIN, "lighthouse");
    assert.deepEqual(
      steps.map(({ plane, restarts }) => [plane, restarts]),
      CONTAINMENT_ORDER.map((plane) => [plane, null]),
    );
    const border = steps.find(({ plane }) => plane === "border")?.files ?? [];
    assert.match(
      border.find(({ path }) => path === "rendered/border/policy.json")?.diff ?? "",
      new RegExp(`^-.*${SERVER}`, "m"),
    );
    assert.ok(steps.every(({ plane, files }) => files.every(({ path }) => planeOfPath(path) === plane)));
    assert.equal(await repository.head(), head);
  });

  it("contain works around a refused commit that was pushed on top of the act when it is run again [CON-1]", async (t) => {
    const { contain, repository, federation } = await control(t);
    await runPass(federation);
    const { partner } = await contain();
    await commitRegistry(repository, new Map([[PILOTS, "version: 0\n"]]), { render: false });
    await assert.rejects(applyPlanes(federation, "contain", partner), (error: unknown) => {
      assert.ok(error instanceof DrawbridgeError);
      assert.match(error.message, /what was committed is not in force/);
      assert.match(error.hint ?? "", /^Give the same command again/);
      return true;
    });
    const again = await contain();
    assert.equal(again.setAside?.reason, "registry_invalid");
    assert.ok((await applyPlanes(federation, "contain", again.partner)).every(({ done }) => done));
  });

  it("applyPlanes names a plane that does not close, and closes the others [CON-1]", async (t) => {
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
});
