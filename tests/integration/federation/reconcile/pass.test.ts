// One pass after another over a real repository, with planes of files.

import assert from "node:assert/strict";
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { DrawbridgeError } from "../../../../src/domain/errors.ts";
import { performAct } from "../../../../src/federation/containment/contain-or-restore.ts";
import { federationStatus } from "../../../../src/federation/containment/federation-status.ts";
import type { PlaneName } from "../../../../src/federation/plane-order.ts";
import { stepPlane } from "../../../../src/federation/reconcile/apply-plane.ts";
import { follow } from "../../../../src/federation/reconcile/follow-branch.ts";
import { type PassOptions, runPass } from "../../../../src/federation/reconcile/pass.ts";
import { readPlane, recentDrift, writePlane } from "../../../../src/federation/state/plane-records.ts";
import { runStep } from "../../../../src/federation/workflow/run-step.ts";
import {
  AT,
  commitRegistry,
  LIGHTHOUSE,
  openControl,
  PILOTS,
  partnerFile,
} from "../../../support/control-repository.ts";
import { registryFiles } from "../../../support/sample-files.ts";
import { control, lighthouseWith } from "./pass-repository.ts";

const CLOSING = ["gateway", "card", "rooms", "border", "transport"];

describe("reconcile pass", () => {
  it("a pass applies the branch's head to every plane, and a second pass has nothing to do [GIT-1]", async (t) => {
    const { pass, parts, federation, repository, target } = await control(t);
    const first = await pass();
    assert.deepEqual(parts.applied, CLOSING);
    const head = await repository.requireHead();
    assert.equal(first.revision, head);
    const committed = await repository.read(head, ["rendered"]);
    for (const [path, text] of committed) {
      assert.equal(readFileSync(target(path.slice("rendered/".length)), "utf8"), text, path);
    }
    const second = await pass();
    assert.deepEqual(parts.applied, []);
    assert.ok(second.planes.every(({ step }) => step === "current"));
    const { planes, contained } = await federationStatus(federation);
    assert.ok(planes.every(({ outcome, revision }) => outcome === "in_force" && revision === head));
    assert.deepEqual(
      contained.map(({ name }) => name),
      ["dredger"],
    );
  });

  it("a revision that closes anything is applied in closing order, another in opening order [GIT-1]", async (t) => {
    const { pass, parts, events, close, repository } = await control(t);
    await pass();
    await close("card");
    await pass();
    assert.deepEqual(parts.applied, ["card"], "only the plane that changed");
    // Opens lighthouse's card and closes pilots' border: whoever closes decides.
    await commitRegistry(
      repository,
      new Map([
        [LIGHTHOUSE, registryFiles().get(LIGHTHOUSE) ?? ""],
        [PILOTS, `${registryFiles().get(PILOTS)}planes:\n  border: closed\n  rooms: closed\n`],
      ]),
    );
    await pass();
    assert.equal(events.find(({ event }) => event === "head_accepted")?.event, "head_accepted");
    assert.deepEqual(
      parts.applied.filter((plane) => plane !== "card"),
      ["rooms", "border"],
    );
    await commitRegistry(repository, new Map([[PILOTS, registryFiles().get(PILOTS) ?? ""]]));
    await pass();
    assert.deepEqual(parts.applied, ["border", "rooms"]);
  });

  it("a removed entry and a withdrawn grant are applied in closing order [GIT-1]", async (t) => {
    const { pass, parts, repository } = await control(t);
    await pass();
    await commitRegistry(
      repository,
      new Map([[LIGHTHOUSE, partnerFile(LIGHTHOUSE, "[docs-qa, berth_planner]", "[docs-qa]")]]),
    );
    assert.equal((await pass()).direction, "closing");
    await commitRegistry(repository, new Map([[PILOTS, null]]));
    assert.equal((await pass()).direction, "closing");
    assert.deepEqual(
      parts.applied,
      CLOSING.filter((plane) => parts.applied.includes(plane as PlaneName)),
    );
    assert.ok(parts.applied.includes("border") && parts.applied.includes("transport"));
  });

  it("an edit by hand is reported, kept and undone [GIT-1]", async (t) => {
    const { pass, events, parts, federation, target } = await control(t);
    await pass();
    const file = target("border/policy.json");
    const before = readFileSync(file, "utf8");
    writeFileSync(file, '{"allowed_servers":["evil.test"]}\n');
    rmSync(target("card/agents.yaml"));

    await pass();
    assert.deepEqual(parts.applied, [], "a pass that does not look does not notice");
    await pass({ checkDrift: true });
    assert.deepEqual(parts.applied, ["card", "border"]);
    assert.equal(readFileSync(file, "utf8"), before);
    const records = recentDrift(federation.state, 10);
    assert.deepEqual(records.map(({ plane, kind }) => `${plane} ${kind}`).sort(), [
      "border edited",
      "card missing",
    ]);
    assert.equal(events.filter(({ event }) => event === "drift").length, 2);
    const kept = records.find(({ plane }) => plane === "border")?.kept ?? assert.fail();
    const path = join(federation.state.path, kept);
    assert.equal(readFileSync(path, "utf8"), '{"allowed_servers":["evil.test"]}\n');
    assert.equal(statSync(path).mode & 0o777, 0o600);
    assert.doesNotMatch(JSON.stringify(records), /evil/, "a record names and never quotes");
    assert.equal((await federationStatus(federation)).drift.length, 2);
  });

  it("an edit by hand is reported also when a new revision overwrites it [GIT-1]", async (t) => {
    const { pass, close, events, target } = await control(t);
    await pass();
    writeFileSync(target("gateway/invocation.yaml"), "edited: true\n");
    await close("gateway");
    await pass();
    assert.deepEqual(
      events.flatMap((event) => (event.event === "drift" ? [event.record.subject] : [])),
      [target("gateway/invocation.yaml")],
    );
  });

  it("a half-done attempt of our own is not taken for drift [GIT-1]", async (t) => {
    const { pass, close, events, parts, federation, target, repository } = await control(t);
    await pass();
    const revision = await close("border");
    // As a kill leaves it: the intent is recorded, the file is there, the outcome is not.
    const record = readPlane(federation.state, "border");
    const policy = (await repository.read(revision, ["rendered/border"])).get("rendered/border/policy.json");
    parts.instead.set("border", () => Promise.reject(new Error("killed")));
    await pass();
    parts.instead.clear();
    writeFileSync(target("border/policy.json"), policy ?? "");
    const { applied } = readPlane(federation.state, "border");
    assert.ok(applied !== null && applied.digest !== record.applied?.digest);
    const { digest, at } = applied;
    writePlane(federation.state, { ...record, applying: { revision, digest, at } });
    await pass({ force: true, checkDrift: true });
    assert.equal(events.filter(({ event }) => event === "drift").length, 0);
    assert.equal(readPlane(federation.state, "border").applied?.outcome, "in_force");
  });

  it("a plane that fails, waits or stays incomplete is retried with back-off and blocks no other [GIT-1]", async (t) => {
    const { pass, parts, clock, federation } = await control(t);
    parts.instead.set("gateway", () =>
      Promise.reject(new DrawbridgeError("agent_unavailable", "the issuer is down", { hint: "Start it." })),
    );
    parts.instead.set("card", async () => ({
      state: "deferred",
      reason: "bridge_not_running",
      retryAfterMs: 90_000,
    }));
    const left = { partner: "x.test", subject: "!room", reason: "no_power", hint: "Get it." };
    parts.instead.set("rooms", async () => ({ state: "incomplete", changed: true, outOfReach: [left] }));
    await pass();
    assert.deepEqual(parts.applied, CLOSING);
    const waits = (plane: PlaneName) => {
      const applied = readPlane(federation.state, plane).applied;
      return applied?.retryAt == null ? null : Date.parse(applied.retryAt) - clock.now();
    };
    assert.deepEqual(
      ["gateway", "card", "rooms", "border"].map((plane) => waits(plane as PlaneName)),
      [5_000, 90_000, 30_000, null],
    );
    assert.equal(readPlane(federation.state, "gateway").applied?.reason, "agent_unavailable");
    await pass();
    assert.deepEqual(parts.applied, [], "not before it is time");
    await clock.advance(5_000);
    await pass();
    assert.deepEqual(parts.applied, ["gateway"]);
    assert.equal(waits("gateway"), 10_000, "longer each time");
    const moving = { ...left, reason: "being_invited" };
    parts.instead.set("rooms", async () => ({ state: "incomplete", changed: true, outOfReach: [moving] }));
    for (const wait of [60_000, 30_000, 30_000]) {
      await clock.advance(600_000);
      await pass();
      assert.equal(waits("rooms"), wait, "what only goes on is not put off longer each time");
    }
    parts.instead.clear();
    await pass({ force: true });
    assert.deepEqual(parts.applied, ["gateway", "card", "rooms"]);
    const status = await federationStatus(federation);
    assert.ok(status.planes.every(({ outcome, retryAt }) => outcome === "in_force" && retryAt === null));
  });

  it("what comes out of reach of a plane in force is attempted at once, then at its time [GIT-1]", async (t) => {
    const { pass, parts, clock, federation, events } = await control(t);
    await pass();
    const subject = "!room";
    const drift = async () => [{ subject, kind: "out_of_reach", found: null }];
    Object.assign(federation.planes.rooms, { drift });
    const left = { partner: "x.test", subject, reason: "no_power", hint: "Get it." };
    parts.instead.set("rooms", async () => ({ state: "incomplete", changed: false, outOfReach: [left] }));
    await pass({ checkDrift: true });
    assert.deepEqual(parts.applied, ["rooms"]);
    assert.ok(events.some(({ event }) => event === "drift"));
    assert.deepEqual(readPlane(federation.state, "rooms").applied?.outOfReach, [left]);
    await pass({ checkDrift: true });
    assert.deepEqual([parts.applied, events], [[], []], "it is known, and not due");
    await clock.advance(30_000);
    await pass({ checkDrift: true });
    assert.deepEqual(parts.applied, ["rooms"]);
  });

  it("a plane is not observed in force after an attempt at another state was cut off [CON-1]", async (t) => {
    const { pass, federation } = await control(t);
    await pass();
    const record = readPlane(federation.state, "gateway");
    const { applied } = record;
    assert.ok(applied !== null);
    const { revision, at } = applied;
    const reachedAfter = async (digest: string) => {
      writePlane(federation.state, { ...record, applying: { revision, digest, at } });
      const step = { plane: "gateway", partner: "matrix.lighthouse.example:8448", how: "observe" } as const;
      const nothing = { observe: async () => ({ items: [] }), evaluate: () => [] };
      return (await runStep(federation, { ...step, ...nothing })).applied;
    };
    assert.deepEqual(await reachedAfter(applied.digest), applied, "the same state is made again");
    assert.equal(await reachedAfter(`sha256:${"0".repeat(64)}`), null);
  });

  it("a plane is tried again although the clock was set back since it failed [GIT-1]", async (t) => {
    const { pass, parts, clock, federation } = await control(t);
    parts.instead.set("gateway", async () => ({ state: "deferred", reason: "down", retryAfterMs: 1_000 }));
    await pass();
    parts.instead.clear();
    await clock.advance(-86_400_000);
    await pass();
    assert.deepEqual(parts.applied, ["gateway"]);
    assert.equal(readPlane(federation.state, "gateway").applied?.outcome, "in_force");
  });

  it("a plane whose real part cannot be compared is applied again by a forced pass alone, and its last good check stays known [GIT-1]", async (t) => {
    const { pass, parts, federation } = await control(t);
    await pass();
    const checked = () => readPlane(federation.state, "gateway").driftCheck;
    await pass({ checkDrift: true });
    const succeededAt = checked()?.succeededAt;
    assert.ok(succeededAt);
    t.mock.method(federation.planes.gateway, "drift", () => Promise.reject(new Error("not reached")));
    await pass({ checkDrift: true });
    assert.deepEqual(checked(), { succeededAt, differences: null });
    const gateway = (await federationStatus(federation)).planes.find(({ plane }) => plane === "gateway");
    assert.deepEqual([gateway?.checkedAt, gateway?.drift], [succeededAt, null]);
    assert.deepEqual(parts.applied, []);
    await pass({ force: true });
    assert.deepEqual(parts.applied, ["gateway"]);
  });

  it("the transport is not cut before the rooms plane was applied, unless that plane alone is requested [GIT-1]", async (t) => {
    const { pass, parts, repository } = await control(t);
    await pass();
    await commitRegistry(repository, new Map([[PILOTS, null]]));
    parts.instead.set("rooms", () => Promise.reject(new Error("the homeserver is down")));
    const { planes } = await pass();
    assert.ok(parts.applied.includes("rooms") && parts.applied.includes("border"));
    assert.ok(!parts.applied.includes("transport"));
    assert.equal(planes.find(({ plane }) => plane === "transport")?.step, "held");
    await pass({ plane: "transport", force: true });
    assert.deepEqual(parts.applied, ["transport"]);
  });

  it("rooms that were closed before the border are applied once more after it, also after a kill [PLN-2]", async (t) => {
    const { pass, parts, clock, federation, repository } = await control(t);
    parts.onApply = () => clock.advance(5);
    await pass();
    await pass();
    assert.deepEqual(parts.applied, [], "nobody is closed");
    await commitRegistry(repository, new Map([[LIGHTHOUSE, lighthouseWith("contained: true")]]));
    await pass();
    assert.deepEqual(parts.applied, ["gateway", "card", "rooms", "border", "rooms"]);
    await pass();
    assert.deepEqual(parts.applied, []);

    await performAct(federation, "restore", "lighthouse");
    await pass();
    // The clock may be set back meanwhile.
    parts.onApply = (plane) => clock.advance(plane === "border" ? -3_600_000 : 5);
    await commitRegistry(repository, new Map([[LIGHTHOUSE, lighthouseWith("contained: true")]]));
    await pass();
    assert.deepEqual(parts.applied, ["gateway", "card", "rooms", "border", "rooms"]);

    parts.onApply = () => clock.advance(5);
    await performAct(federation, "restore", "lighthouse");
    await pass();
    await commitRegistry(repository, new Map([[LIGHTHOUSE, lighthouseWith("contained: true")]]));
    await pass({ plane: "rooms" });
    parts.onApply = async (plane) => {
      await clock.advance(5);
      if (plane === "rooms") throw new Error("as if killed");
    };
    await pass({ plane: "border" });
    assert.deepEqual(parts.applied, ["border", "rooms"]);
    const { applied } = readPlane(federation.state, "rooms");
    assert.equal(applied?.outcome, "failed", "closed is not said before the second look");
    parts.onApply = () => clock.advance(5);
    await pass({ force: true });
    assert.equal(readPlane(federation.state, "rooms").applied?.outcome, "in_force");
  });

  it("two passes at once never apply an older revision over a newer one [GIT-1]", async (t) => {
    const opened = await control(t);
    const other = await openControl(opened.directory, opened.repository, opened.clock);
    await opened.pass();
    let closing: Promise<unknown> | undefined;
    opened.parts.onApply = async (plane) => {
      if (plane === "gateway" && closing === undefined) {
        await opened.close("border");
        closing = runPass(other.federation, { plane: "border" });
        await closing;
      }
    };
    await opened.close("gateway");
    await runPass(opened.federation);
    const head = await opened.repository.requireHead();
    assert.equal(readPlane(opened.federation.state, "border").applied?.revision, head);
    const wanted = (await opened.repository.read(head, ["rendered/border"])).get(
      "rendered/border/policy.json",
    );
    assert.equal(readFileSync(opened.target("border/policy.json"), "utf8"), wanted);
  });

  it("a damaged plane record is reported and its plane applied again, and a damaged head record stops the pass", async (t) => {
    const { pass, parts, events, federation } = await control(t);
    await pass();
    writeFileSync(join(federation.state.path, "planes/card.json"), "{");
    await pass();
    assert.deepEqual(parts.applied, ["card"]);
    assert.ok(events.some(({ event }) => event === "state_damaged"));
    writeFileSync(join(federation.state.path, "head.json"), "{");
    await assert.rejects(pass(), {
      code: "state_unreadable",
      hint: /move it away: without it, the next pass/,
    });
  });

  it("the state folder and its files belong to this user alone", async (t) => {
    const { pass, federation } = await control(t);
    await pass();
    assert.equal(statSync(federation.state.path).mode & 0o777, 0o700);
    const files = readdirSync(federation.state.path, { recursive: true, withFileTypes: true }).filter((one) =>
      one.isFile(),
    );
    assert.ok(files.length >= 7);
    for (const file of files) {
      assert.equal(statSync(join(file.parentPath, file.name)).mode & 0o077, 0, file.name);
    }
  });

  it("the service follows the branch, checks for drift, survives a failed round and ends when stopped [GIT-1]", async (t) => {
    const { federation, parts, clock, close, target, repository } = await control(t);
    const stop = new AbortController();
    const errors: unknown[] = [];
    let ready = 0;
    const service = follow(federation, {
      intervalMs: 1_000,
      driftIntervalMs: 30_000,
      stop: stop.signal,
      onReady: () => ready++,
      onError: (error) => errors.push(error),
    });
    // The rounds do real I/O between two sleeps of the manual clock.
    const round = async (until: () => boolean) => {
      for (let tries = 0; !until(); tries++) {
        assert.ok(tries < 2_000, "the service did not come to it");
        if (clock.wakeTimes.length > 0) await clock.advance(1_000);
        await new Promise((resolve) => setTimeout(resolve, 2));
      }
    };
    await round(() => ready === 1);
    assert.deepEqual(parts.applied, CLOSING);
    await assert.rejects(
      follow(federation, {
        intervalMs: 1,
        driftIntervalMs: 1,
        stop: stop.signal,
        onReady() {},
        onError() {},
      }),
      { code: "program_failed" },
    );
    await close("gateway");
    await round(() => parts.applied.length === 6);
    writeFileSync(target("border/policy.json"), "by hand");
    await round(() => recentDrift(federation.state, 9).length > 0);
    writeFileSync(join(federation.state.path, "head.json"), "{");
    await close("card");
    await round(() => errors.length > 0);
    rmSync(join(federation.state.path, "head.json"));
    const head = await repository.requireHead();
    await round(() => readPlane(federation.state, "card").applied?.revision === head);
    stop.abort();
    await service;
  });

  it("the service looks for drift although the clock was set back since it last did [GIT-1]", async (t) => {
    const { federation, clock, target } = await control(t);
    const stop = new AbortController();
    const service = follow(federation, {
      intervalMs: 1_000,
      driftIntervalMs: 30_000,
      stop: stop.signal,
      onReady: () => void clock.advance(-86_400_000),
      onError: (error) => assert.fail(String(error)),
    });
    for (let tries = 0; clock.wakeTimes.length === 0; tries++) {
      assert.ok(tries < 2_000, "the first round does not end");
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    writeFileSync(target("border/policy.json"), "by hand");
    for (let tries = 0; recentDrift(federation.state, 9).length === 0; tries++) {
      assert.ok(tries < 500, "no drift is found");
      if (clock.wakeTimes.length > 0) await clock.advance(1_000);
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    stop.abort();
    await service;
  });

  it("a superseded revision is never reported in force [GIT-1]", async (t) => {
    const { pass, close, federation, repository } = await control(t);
    const { desired } = await pass();
    assert.ok(desired !== undefined);
    await close("gateway");
    await pass();
    const { step, record } = await stepPlane({
      ...{ context: federation, plane: "gateway" as const, desired },
      ...{ force: true, checkDrift: false, stateOf: async () => undefined },
    });
    assert.deepEqual([step, record.applied, record.inForce], ["superseded", null, null]);
    const kept = readPlane(federation.state, "gateway");
    assert.equal(kept.applied?.revision, await repository.requireHead(), "what is remembered stays");
  });

  it("the time since which a plane is in force is reported with the last time it was restored [CON-1]", async (t) => {
    const { pass, close, parts, federation, clock, target, repository } = await control(t);
    const times = () => {
      const { inForce } = readPlane(federation.state, "gateway");
      return [inForce?.at, inForce?.repairedAt ?? null].map((time) =>
        time == null ? null : Date.parse(time) - AT,
      );
    };
    const later = async (options: PassOptions = { force: true, checkDrift: true }) => {
      await clock.advance(1_000);
      await pass(options);
      return times();
    };
    await close("gateway");
    assert.deepEqual(await later(), [1_000, null]);
    assert.deepEqual(await later(), [1_000, null]);

    // Opened by hand while the gateway is down: the file is put right, and the gateway takes it up with the next pass.
    const file = target("gateway/invocation.yaml");
    writeFileSync(file, "opened: by hand\n");
    const closed = (await repository.read(await repository.requireHead(), ["rendered"])).get(
      "rendered/gateway/invocation.yaml",
    );
    parts.instead.set("gateway", async () => {
      writeFileSync(file, closed ?? "");
      return { state: "deferred", reason: "gateway_not_running", retryAfterMs: 1_000 };
    });
    await later();
    parts.instead.delete("gateway");
    assert.deepEqual(await later(), [1_000, 4_000], "the attempt that ended it has changed nothing itself");

    // Cut off while it was at work: what it has changed is not known.
    const { applied } = readPlane(federation.state, "gateway");
    assert.ok(applied !== null);
    const { revision, digest, at } = applied;
    writePlane(federation.state, {
      ...readPlane(federation.state, "gateway"),
      applying: { revision, digest, at },
    });
    assert.deepEqual(await later(), [1_000, 5_000]);

    // The file stands as it should, and the gateway had another one in force until it was asked.
    const { gateway } = federation.planes;
    const drift = t.mock.method(gateway, "drift", async () => [
      { subject: "invocation", kind: "not_in_force", found: null },
    ]);
    assert.deepEqual(await later(), [1_000, 6_000]);
    drift.mock.restore();

    // Another state was tried in between, and nothing of either has ended in force.
    parts.instead.set("gateway", async () => ({ state: "deferred", reason: "down", retryAfterMs: 1_000 }));
    await commitRegistry(repository, new Map([[LIGHTHOUSE, registryFiles().get(LIGHTHOUSE) ?? ""]]));
    await later();
    await close("gateway");
    await later();
    parts.instead.delete("gateway");
    assert.deepEqual(await later(), [9_000, null], "it was not closed since the first time");
  });
});
