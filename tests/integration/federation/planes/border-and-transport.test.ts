// What the border and transport planes do to files and to a homeserver that answers as the test says.
import assert from "node:assert/strict";
import { mkdirSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { parse } from "yaml";
import { systemClock } from "../../../../src/domain/clock.ts";
import { DrawbridgeError } from "../../../../src/domain/errors.ts";
import { BORDER_POLICY, borderRender } from "../../../../src/federation/planes/border/render.ts";
import { borderRuntime } from "../../../../src/federation/planes/border/runtime.ts";
import { TRANSPORT_INCLUDE, transportRender } from "../../../../src/federation/planes/transport/render.ts";
import { transportRuntime } from "../../../../src/federation/planes/transport/runtime.ts";
import { type PolicyFile, policyDigest } from "../../../../src/rendered-files/border-policy.ts";
import { type ReceivedRequest, scriptedHomeserver } from "../../../support/http-server.ts";
import { ManualClock } from "../../../support/manual-clock.ts";
import {
  type DesiredPartner,
  deployment,
  desiredPlane,
  partnerEntry,
  readOrUndefined,
} from "../../../support/sample-files.ts";
import { temporaryFolder, writeFile } from "../../../support/temporary.ts";

const OWN = "a.test:8448";
const B = { serverName: "b.test:8448" };
const D = { serverName: "d.test:8448" };
const quiet = () => undefined;

function refusedWith(code: string, what: RegExp) {
  return (error: unknown) =>
    error instanceof DrawbridgeError &&
    error.code === code &&
    what.test(error.message) &&
    error.hint !== undefined;
}

/** A homeserver whose border module and whitelist are what its files said when it last looked. */
async function homeserver(t: TestContext, options: { readonly maxPerHour?: number } = {}) {
  const directory = temporaryFolder(t);
  const started = join(directory, "started");
  const server = await scriptedHomeserver(t, (request) => answer(request));
  const config = deployment(directory, server.url, {
    transport: {
      includeFile: "include/transport.yaml",
      restart: { command: ["cp", "include/transport.yaml", started], timeout: "2s", ...options },
    },
  });
  const policyFile = join(directory, config.border.policyFile);
  const includeFile = join(directory, config.transport.includeFile);
  mkdirSync(join(directory, "include"));
  const made = {
    directory,
    config,
    policyFile,
    includeFile,
    isDown: false,
    isStuck: false,
    requests: server.requests,
    restarts,
  };

  /** What the restart command has written is what the "process" runs with. */
  function restarts(): string | undefined {
    return readOrUndefined(started);
  }

  function answer({ path, authorization, query }: ReceivedRequest) {
    if (made.isDown) return "reset" as const;
    if (path.endsWith("/federation_whitelist")) {
      assert.equal(authorization, "Bearer operator");
      const include = parse(readOrUndefined(started) ?? "{}") as { federation_domain_whitelist?: string[] };
      const whitelist = include.federation_domain_whitelist;
      return { body: { whitelist_enabled: whitelist !== undefined, whitelist: whitelist ?? [] } };
    }
    assert.equal(authorization, "Bearer status");
    const policy = JSON.parse(
      made.isStuck ? '{"allowed_servers":[]}' : (readOrUndefined(policyFile) ?? '{"allowed_servers":[]}'),
    ) as PolicyFile;
    const policy_digest = policyDigest(policy);
    if (path.endsWith("/check")) {
      return { body: { allowed: policy.allowed_servers.includes(query.get("server") ?? ""), policy_digest } };
    }
    return {
      body: {
        policy_digest,
        loaded_at: "2026-01-01T00:00:00.000Z",
        started_at: new Date(1e12 + (readOrUndefined(started)?.length ?? 0)).toISOString(),
        state: "in_force",
        alarm: null,
        servers: policy.allowed_servers.length,
        invite_rule: null,
        counts: { server_not_allowed: 3, invite_rule_denied: 0 },
        errors: 0,
      },
    };
  }
  return made;
}

const border = (...partners: readonly DesiredPartner[]) => desiredPlane(borderRender, OWN, partners);
const transport = (...partners: readonly DesiredPartner[]) => desiredPlane(transportRender, OWN, partners);

describe("border and transport planes", () => {
  it("a policy is applied when the module reports its digest, and not written again [PLN-3]", async (t) => {
    const server = await homeserver(t);
    const plane = borderRuntime(server.config, systemClock);
    const desired = border(B, { ...D, contained: true });
    assert.deepEqual(await plane.apply(desired, quiet), { state: "in_force", changed: true });
    assert.equal(readOrUndefined(server.policyFile), desired.files.get(BORDER_POLICY));
    assert.deepEqual(await plane.apply(desired, quiet), { state: "in_force", changed: false });
    assert.deepEqual(await plane.drift(desired), []);
  });

  it("a module that keeps another policy is an error, and a homeserver that is down is waited for [PLN-3]", async (t) => {
    const server = await homeserver(t);
    const clock = new ManualClock(0);
    const plane = borderRuntime(server.config, {
      now: () => clock.now(),
      sleep: (ms) => clock.advance(ms),
    });
    server.isStuck = true;
    await assert.rejects(plane.apply(border(B), quiet), refusedWith("homeserver_refused", /another policy/));
    server.isDown = true;
    assert.deepEqual(await plane.apply(border(B), quiet), {
      state: "deferred",
      reason: "homeserver_unavailable",
      retryAfterMs: 5_000,
    });
    await assert.rejects(plane.drift(border(B)), { code: "homeserver_unavailable" }, "not seen is not well");
  });

  const MISTAKES: readonly (readonly [what: string, servers: readonly string[], says: RegExp])[] = [
    ["the own server is missing", [B.serverName, D.serverName], /leaves out a\.test:8448/],
    ["another partner is cut off", [OWN, B.serverName], /cuts off d\.test:8448/],
    [
      "somebody is admitted whom the registry closes",
      [OWN, B.serverName, D.serverName, "c.test"],
      /admits "c\.test"/,
    ],
    ["a port is missing", [OWN, B.serverName, "d.test"], /cuts off d\.test:8448/],
    ["nobody is admitted", [], /leaves out/],
  ];

  for (const [what, servers, says] of MISTAKES) {
    it(`a rendered list is refused before it is written when ${what} [PLN-1] [PLN-3]`, async (t) => {
      const server = await homeserver(t);
      const policy = desiredPlane(borderRender, OWN, [B, D], JSON.stringify({ allowed_servers: servers }));
      await assert.rejects(
        borderRuntime(server.config, systemClock).apply(policy, quiet),
        refusedWith("head_refused", says),
      );
      const include = JSON.stringify({
        federation_domain_whitelist: servers,
        federation_whitelist_endpoint_enabled: true,
        trusted_key_servers: [],
      });
      await assert.rejects(
        transportRuntime(server.config, systemClock).apply(
          desiredPlane(transportRender, OWN, [B, D], include),
          quiet,
        ),
        refusedWith("head_refused", says),
      );
      assert.equal(readOrUndefined(server.policyFile), undefined);
      assert.equal(readOrUndefined(server.includeFile), undefined);
      assert.equal(server.restarts(), undefined);
      assert.deepEqual(server.requests, []);
    });
  }

  it("an include file with another setting of the homeserver is refused [PLN-1]", async (t) => {
    const server = await homeserver(t);
    const text = `${transport(B).files.get(TRANSPORT_INCLUDE)}enable_registration: true\n`;
    const plane = transportRuntime(server.config, systemClock);
    await assert.rejects(
      plane.apply(desiredPlane(transportRender, OWN, [B], text), quiet),
      refusedWith("config_invalid", /enable_registration/),
    );
    assert.equal(readOrUndefined(server.includeFile), undefined);
  });

  it("a changed whitelist restarts the homeserver once, an unchanged one never [PLN-1]", async (t) => {
    const server = await homeserver(t);
    const plane = transportRuntime(server.config, systemClock);
    const desired = transport(B, D);
    assert.deepEqual(await plane.apply(desired, quiet), { state: "in_force", changed: true });
    assert.equal(server.restarts(), desired.files.get(TRANSPORT_INCLUDE));
    assert.deepEqual(await plane.apply(desired, quiet), { state: "in_force", changed: false });
    // Containment leaves the transport alone.
    assert.deepEqual(await plane.apply(transport({ ...B, contained: true }, D), quiet), {
      state: "in_force",
      changed: false,
    });
    assert.deepEqual(await plane.drift(desired), []);
  });

  it("a crash between the file and the restart is noticed at the next pass [PLN-1]", async (t) => {
    const server = await homeserver(t);
    const desired = transport(B);
    await transportRuntime(server.config, systemClock).apply(desired, quiet);

    // Only the key servers change, so that the running whitelist says nothing; the restart fails.
    const changed = transport({ ...B, ...{ transport: { keyServer: true } } });
    const broken = deployment(server.directory, server.config.homeserver.url, {
      transport: { restart: { command: ["false"] } },
    });
    await assert.rejects(
      transportRuntime(broken, systemClock).apply(changed, quiet),
      refusedWith("program_failed", /exit code 1/),
    );
    assert.equal(server.restarts(), desired.files.get(TRANSPORT_INCLUDE));
    const outcome = await transportRuntime(server.config, systemClock).apply(changed, quiet);
    assert.deepEqual(outcome, { state: "in_force", changed: true });
    assert.equal(server.restarts(), changed.files.get(TRANSPORT_INCLUDE));
  });

  it("restarts beyond the limit are deferred, also by another process, and allowed an hour later [PLN-1]", async (t) => {
    const server = await homeserver(t, { maxPerHour: 2 });
    let now = 1_800_000_000_000;
    const clock = { now: () => now, sleep: async () => undefined };
    const plane = () => transportRuntime(server.config, clock);
    await plane().apply(transport(B), quiet);
    now += 600_000;
    await plane().apply(transport(B, D), quiet);
    now += 600_000;
    assert.deepEqual(await plane().apply(transport(D), quiet), {
      state: "deferred",
      reason: "restart_limit",
      retryAfterMs: 2_400_000,
    });
    assert.equal(server.restarts(), transport(B, D).files.get(TRANSPORT_INCLUDE));
    const [drift] = await plane().drift(transport(D));
    assert.equal(drift?.kind, "not_in_force");
    now += 2_400_000;
    assert.deepEqual(await plane().apply(transport(D), quiet), { state: "in_force", changed: true });
  });

  it("a damaged record of restarts allows one more within the hour, and no loop [PLN-1]", async (t) => {
    const server = await homeserver(t, { maxPerHour: 3 });
    const file = join(server.directory, server.config.state, "transport.json");
    let now = 1_800_000_000_000;
    const clock = { now: () => now, sleep: async () => undefined };
    const plane = () => transportRuntime(server.config, clock);
    await plane().apply(transport(B), quiet);
    writeFileSync(file, '{"version":1,"pend');
    utimesSync(file, now / 1_000, now / 1_000);
    now += 60_000;
    assert.deepEqual(await plane().apply(transport(B, D), quiet), { state: "in_force", changed: true });
    now += 60_000;
    const { state } = await plane().apply(transport(D), quiet);
    assert.equal(state, "deferred");
    now += 3_600_000;
    assert.deepEqual(await plane().apply(transport(D), quiet), { state: "in_force", changed: true });
  });

  it("a homeserver that does not come back with the list is an error, and the restart stays due [PLN-1]", async (t) => {
    const server = await homeserver(t);
    const desired = transport(B);
    let now = 1_800_000_000_000;
    const clock = {
      now: () => now,
      // Each try asks the homeserver: pauses that are ten times as long make a tenth of them until the deadline.
      sleep: async (ms: number) => {
        now += 10 * ms;
      },
    };
    const idle = deployment(server.directory, server.config.homeserver.url);
    await assert.rejects(
      transportRuntime(idle, clock).apply(desired, quiet),
      refusedWith("homeserver_unavailable", /did not come back/),
    );
    const outcome = await transportRuntime(server.config, clock).apply(desired, quiet);
    assert.deepEqual(outcome, { state: "in_force", changed: true });
  });

  it("restarts that fail count towards the limit, and restarts at a time in the future do not [PLN-1]", async (t) => {
    const server = await homeserver(t);
    const now = 1_800_000_000_000;
    const clock = { now: () => now, sleep: async () => undefined };
    const broken = deployment(server.directory, server.config.homeserver.url, {
      transport: { restart: { command: ["false"], maxPerHour: 2 } },
    });
    const file = join(server.directory, server.config.state, "transport.json");
    writeFile(file, JSON.stringify({ version: 1, pending: null, restarts: [now + 60_000, now + 120_000] }));
    const apply = () => transportRuntime(broken, clock).apply(transport(B), quiet);
    for (const _ of [1, 2]) await assert.rejects(apply(), refusedWith("program_failed", /exit code 1/));
    assert.deepEqual(await apply(), {
      state: "deferred",
      reason: "restart_limit",
      retryAfterMs: 3_600_000,
    });
  });

  it("a homeserver whose process is the one from before the restart command was not restarted [PLN-1]", async (t) => {
    const server = await homeserver(t);
    await transportRuntime(server.config, systemClock).apply(transport(B), quiet);
    let now = 1_800_000_000_000;
    const clock = {
      now: () => now,
      // Each try asks the homeserver: pauses that are ten times as long make a tenth of them until the deadline.
      sleep: async (ms: number) => {
        now += 10 * ms;
      },
    };
    const idle = deployment(server.directory, server.config.homeserver.url, {
      transport: { restart: { command: ["true"] } },
    });
    // Only the key servers change, so that the running whitelist is already the declared one.
    const changed = transport({ ...B, ...{ transport: { keyServer: true } } });
    await assert.rejects(
      transportRuntime(idle, clock).apply(changed, quiet),
      refusedWith("homeserver_unavailable", /did not come back/),
    );
  });

  it("a file edited by hand is drift, reported by its digest [PLN-1] [PLN-3]", async (t) => {
    const server = await homeserver(t);
    await borderRuntime(server.config, systemClock).apply(border(B), quiet);
    await transportRuntime(server.config, systemClock).apply(transport(B), quiet);
    writeFile(server.policyFile, JSON.stringify({ allowed_servers: [OWN, "c.test"] }));
    rmSync(server.includeFile);
    const [edited] = await borderRuntime(server.config, systemClock).drift(border(B));
    assert.equal(edited?.kind, "edited");
    assert.match(edited?.found ?? "", /^sha256:/);
    const [missing] = await transportRuntime(server.config, systemClock).drift(transport(B));
    assert.deepEqual([missing?.kind, missing?.found], ["missing", null]);
  });

  it("the operator's probes report of one partner what the homeserver answers [PLN-1] [PLN-3]", async (t) => {
    const server = await homeserver(t);
    const closed = { ...B, planes: { border: "closed", transport: "closed" } } as const;
    const said = async (partner: DesiredPartner) => {
      const [policy, transports] = [border(closed, D), transport(closed, D)];
      const entry = partnerEntry(partner);
      return [
        ...(await borderRuntime(server.config, systemClock).probe(policy, entry)),
        ...(await transportRuntime(server.config, systemClock).probe(transports, entry)),
      ].map(({ probe, verdict, reason }) => [probe, verdict, reason]);
    };
    await borderRuntime(server.config, systemClock).apply(border(closed, D), quiet);
    await transportRuntime(server.config, systemClock).apply(transport(closed, D), quiet);
    assert.deepEqual(await said(closed), [
      ["policy_check", "closed", "server_not_allowed"],
      ["policy_in_force", "closed", null],
      ["whitelist", "closed", "not_in_whitelist"],
    ]);
    assert.deepEqual(await said(D), [
      ["policy_check", "open", null],
      ["policy_in_force", "open", null],
      ["whitelist", "open", null],
    ]);
    server.isDown = true;
    assert.deepEqual(
      (await said(closed)).map(([, verdict]) => verdict),
      ["unknown", "unknown", "unknown"],
    );
  });
});
