// Plane 3 on real homeservers: A has the border module, B is the partner that it drops, D a neutral third.
// Everything else is open (no whitelist, no room ACL), so what is stopped here is stopped by the border alone.
import assert from "node:assert/strict";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { after, afterEach, before, describe, it } from "node:test";
import type { RoomId, ServerName } from "../../../../src/domain/identifiers.ts";
import { borderStatus } from "../../../../src/federation/planes/border/runtime.ts";
import { type PolicyFile, policyDigest } from "../../../../src/rendered-files/border-policy.ts";
import { writeWhole } from "../../../../src/runtime/write-file.ts";
import { type FederatedUser, type Federation, startFederation, until } from "../../../support/federation.ts";

type Names = "a" | "b" | "d";

function policyText(allowed: readonly string[], rule: Partial<PolicyFile> = {}): string {
  return JSON.stringify({ allowed_servers: allowed, ...rule });
}

interface Violation {
  readonly schema: string;
  readonly reason: string;
  readonly server: string;
  readonly room: string | null;
  readonly event: string | null;
  readonly policy_digest: string | null;
  readonly at: string;
}

describe("the border module in a real homeserver", () => {
  let federation: Federation<Names>;
  let own: ServerName;
  let partner: ServerName;
  let third: ServerName;
  let alice: FederatedUser;
  let bob: FederatedUser;
  let dora: FederatedUser;

  before(async () => {
    federation = await startFederation(["a", "b", "d"], {
      border: { a: (names) => policyText(Object.values(names)) },
    });
    const { a, b, d } = federation.servers;
    [own, partner, third] = [a.name, b.name, d.name];
    [alice, bob, dora] = await Promise.all([a.user("alice"), b.user("bob"), d.user("dora")]);
  });
  after(() => federation?.dispose());
  afterEach(() => allow(own, partner, third));

  const allowText = (text: string) => writeWhole(federation.servers.a.border.policyFile, text, 0o644);
  const allow = (...servers: readonly string[]) => allowText(policyText(servers));
  const module = (token?: string) => {
    const { url, border } = federation.servers.a;
    return borderStatus({
      directory: "/",
      homeserver: { url, operatorToken: { env: "UNUSED" }, signingKeyFile: "unused" },
      border: {
        policyFile: border.policyFile,
        violationsFile: border.violationsFile,
        statusToken: { file: token ?? border.statusTokenFile },
      },
    });
  };
  const violations = (): readonly Violation[] =>
    readFileSync(federation.servers.a.border.violationsFile, "utf8")
      .split("\n")
      .filter((line) => line !== "")
      .map((line) => JSON.parse(line) as Violation);

  /** A room of Alice's in which everybody hears everybody. */
  async function sharedRoom(...others: readonly FederatedUser[]): Promise<RoomId> {
    const room = await alice.createRoom();
    for (const other of others) assert.equal((await other.join(room, own)).status, 200);
    await Promise.all(others.map((other) => hears(alice, room, other.say(room, `hello of ${other.userId}`))));
    await Promise.all(others.map((other) => hears(other, room, alice.say(room, `hello to ${other.userId}`))));
    return room;
  }

  async function hears(listener: FederatedUser, room: RoomId, said: Promise<string>): Promise<void> {
    const event = await said;
    await until(
      `${listener.userId} hearing`,
      () => listener.request("GET", `/rooms/${encodeURIComponent(room)}/event/${encodeURIComponent(event)}`),
      ({ status }) => status === 200,
    );
  }

  it("a dropped server's events stop at the next callback, without a restart; others' go on [PLN-3]", async () => {
    const room = await sharedRoom(bob, dora);
    const process = federation.servers.a.pid();
    const before = await module().status();

    allow(own, third);
    const said = await bob.say(room, "after the drop");
    const violation = await until(
      "a violation",
      async () => violations().find(({ event }) => event === said),
      (found) => found !== undefined,
    );
    await hears(alice, room, dora.say(room, "still here"));

    assert.ok(!(await alice.heard(room)).includes("after the drop"));
    const status = await module().status();
    assert.equal(status.state, "in_force");
    assert.notEqual(status.policy_digest, before.policy_digest);
    assert.equal(status.policy_digest, policyDigest({ allowed_servers: [own, third] }));
    assert.equal(status.counts.server_not_allowed, before.counts.server_not_allowed + 1);
    assert.deepEqual(
      { ...violation, at: "" },
      {
        schema: "svc_federation_policy_violation",
        reason: "server_not_allowed",
        server: partner,
        room,
        event: said,
        policy_digest: status.policy_digest,
        at: "",
      },
    );
    assert.equal(federation.servers.a.pid(), process);
    assert.equal(status.started_at, before.started_at);
  });

  it("a dropped server's messages do not come in by way of a third server either [PLN-3]", async () => {
    const room = await sharedRoom(bob, dora);
    allow(own, third);
    const said = await bob.say(room, "by way of the third");
    await hears(dora, room, Promise.resolve(said));
    await hears(alice, room, dora.say(room, "I heard something"));

    assert.ok(!(await alice.heard(room)).includes("by way of the third"));
    assert.ok(violations().some(({ event }) => event === said));

    allow(own, partner, third);
    await hears(alice, room, bob.say(room, "welcome back"));
    const heard = await alice.heard(room);
    assert.ok(heard.includes("welcome back"), "the partner is heard again");
    assert.ok(!heard.includes("by way of the third"), "what was relayed meanwhile stays emptied");
  });

  it("a dropped server's users are not invited, do not invite and do not join here [PLN-3]", async () => {
    const room = await sharedRoom();
    const theirs = await bob.createRoom();
    const invitedBefore = await bob.createRoom();
    await bob.call("POST", `/rooms/${encodeURIComponent(invitedBefore)}/invite`, { user_id: alice.userId });
    const admin = await federation.servers.a.user("operator", true);
    const known = violations().length;

    allow(own, third);
    const refused: Record<string, { readonly status: number }> = {
      "the partner invites": await bob.request("POST", `/rooms/${encodeURIComponent(theirs)}/invite`, {
        user_id: alice.userId,
      }),
      "the partner joins": await bob.join(room, own),
      "the partner knocks": await bob.request("POST", `/knock/${encodeURIComponent(room)}?via=${own}`, {}),
      "a local user invites the partner": await alice.request(
        "POST",
        `/rooms/${encodeURIComponent(room)}/invite`,
        { user_id: bob.userId },
      ),
      "a room is made with the partner": await alice.request("POST", "/createRoom", {
        invite: [bob.userId],
      }),
      "an administrator invites the partner": await admin.request(
        "POST",
        `/rooms/${encodeURIComponent(await admin.createRoom())}/invite`,
        { user_id: bob.userId },
      ),
      "a local user accepts an older invitation": await alice.join(invitedBefore, partner),
    };
    assert.deepEqual(
      Object.fromEntries(Object.entries(refused).map(([what, { status }]) => [what, status])),
      Object.fromEntries(Object.keys(refused).map((what) => [what, 403])),
    );
    const denied = violations().slice(known);
    assert.ok(denied.length > 0);
    assert.ok(denied.every(({ reason, server }) => reason === "server_not_allowed" && server === partner));

    await alice.call("POST", `/rooms/${encodeURIComponent(room)}/ban`, { user_id: bob.userId });
    assert.equal((await dora.join(room, own)).status, 200, "the third server is untouched");
  });

  it("invite_rule deny_all refuses invitations from outside, and events still come in [PLN-3]", async () => {
    const room = await sharedRoom(dora);
    const theirs = await dora.createRoom();
    allowText(policyText([own, partner, third], { invite_rule: "deny_all" }));
    const invitation = await dora.request("POST", `/rooms/${encodeURIComponent(theirs)}/invite`, {
      user_id: alice.userId,
    });
    assert.equal(invitation.status, 403);
    const violation = violations().at(-1);
    assert.equal(violation?.reason, "invite_rule_denied");
    assert.equal(violation?.server, third);
    assert.equal((await module().status()).invite_rule, "deny_all");
    await hears(alice, room, dora.say(room, "no invitation"));
  });

  it("a policy without the local server denies everybody, and local users are not affected [PLN-3]", async () => {
    const room = await sharedRoom(dora);
    const anna = await federation.servers.a.user("anna");
    await anna.join(room, own);
    allow(partner, third);
    const said = await dora.say(room, "nobody hears this");
    await until("a violation", async () => violations().some(({ event }) => event === said), Boolean);
    await hears(anna, room, alice.say(room, "among ourselves"));
    const status = await module().status();
    assert.deepEqual([status.state, status.alarm, status.servers], ["deny_all", "local_server_missing", 0]);
  });

  it("a broken policy changes nothing but raises an alarm; without a file everybody is denied [PLN-3]", async () => {
    const room = await sharedRoom(dora);
    const digest = policyDigest({ allowed_servers: [own, partner, third] });
    allowText('{"allowed_servers": [');
    await hears(alice, room, dora.say(room, "by the last valid policy"));
    const broken = await module().status();
    assert.deepEqual([broken.state, broken.alarm, broken.policy_digest], ["last_valid", "not_json", digest]);
    assert.match(federation.servers.a.log(), /policy alarm not_json/);

    rmSync(federation.servers.a.border.policyFile);
    const said = await dora.say(room, "without a policy");
    await until("a violation", async () => violations().some(({ event }) => event === said), Boolean);
    const absent = await module().status();
    assert.deepEqual([absent.state, absent.alarm, absent.policy_digest], ["deny_all", "policy_absent", null]);
  });

  it("servers are compared exactly, the port included [PLN-3]", async () => {
    const [host = ""] = partner.split(":");
    allow(own, third, host, `${host}:1`);
    assert.equal((await module().check(partner)).allowed, false);
    assert.equal((await module().check(host)).allowed, true);
    assert.equal((await module().check(third.toUpperCase())).allowed, false);
  });

  it("the status resource answers nobody without its token, which is rotated by writing the file [PLN-3]", async () => {
    const { url, border } = federation.servers.a;
    const resource = `${url}/_synapse/client/drawbridge/v1/border`;
    const ask = async (headers: Record<string, string>) => (await fetch(resource, { headers })).status;
    const token = readFileSync(border.statusTokenFile, "utf8").trim();
    const bearer = (value: string) => ({ authorization: `Bearer ${value}` });
    assert.equal(await ask({}), 401);
    assert.equal(await ask({ authorization: `Basic ${token}` }), 401);
    assert.equal(await ask(bearer("wrong")), 403);
    assert.equal(await ask(bearer(alice.accessToken)), 403);
    assert.equal(await ask(bearer(token)), 200);

    writeFileSync(border.statusTokenFile, "another-token\n");
    assert.equal(await ask(bearer(token)), 403);
    assert.equal(await ask(bearer("another-token")), 200);
    writeFileSync(border.statusTokenFile, "");
    assert.equal(await ask(bearer("another-token")), 503);
    writeFileSync(border.statusTokenFile, `${token}\n`);
  });

  it("an ACL that is set under traffic is enforced at once, and the module reports it [PLN-2] [PLN-3]", async () => {
    const rooms = await Promise.all(Array.from({ length: 8 }, () => sharedRoom(dora)));
    const [host = ""] = third.split(":");
    let isTalking = true;
    const talking = rooms.map(async (room) => {
      for (let said = 0; isTalking; said++) await dora.say(room, `traffic ${said}`);
    });
    try {
      for (const room of rooms) {
        await alice.call("PUT", `/rooms/${encodeURIComponent(room)}/state/m.room.server_acl`, {
          allow: ["*"],
          deny: [host],
          allow_ip_literals: false,
        });
      }
      for (const room of rooms) {
        const enforced = await until(
          "enforcement",
          () => module().enforcement(room, third),
          ({ allowed, enforces_state }) => !allowed && enforces_state,
        );
        assert.match(enforced.state_event_id ?? "", /^\$/);
        assert.equal((await module().enforcement(room, own)).allowed, true);
        // What comes from the third server in between has it read and cached again.
        const refreshed = async () => {
          await module().refresh(room);
          return await module().enforcement(room, third);
        };
        await until("a refresh", refreshed, ({ cached }) => !cached);
      }
    } finally {
      isTalking = false;
      await Promise.all(talking);
    }
  });
});
