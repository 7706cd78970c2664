// Answers about keys in which one server has written what it likes: a homeserver passes on what others say of their users'
// keys. The homeserver is scripted, the machines are real.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import type { OutgoingRequest } from "../../../../src/bridge/matrix/device-api.ts";
import { Homeserver } from "../../../../src/bridge/matrix/homeserver.ts";
import { systemClock } from "../../../../src/domain/clock.ts";
import { serverOf, type UserId } from "../../../../src/domain/identifiers.ts";
import { GhostSide, KeyServer, machinesScene, Person } from "../../../support/crypto-world.ts";
import { type Script, type ScriptedAnswer, scriptedHomeserver } from "../../../support/http-server.ts";

const GHOST = "@agent_docs:a.test";
const ALICE = "@alice:a.test";
const ROOM = "!room:a.test";

type ByUser = Record<string, unknown>;

/** A ghost that makes its requests at a homeserver on which servers spoil what is said of their users. */
class SpoiledGhost extends GhostSide {
  /** What the homeserver answers a claim of keys from a server with instead. */
  readonly failing: Record<string, ScriptedAnswer> = {};
  /** The servers of each claim. */
  readonly claims: string[][] = [];
  /** By user: what stands in the place of the user's keys. */
  readonly spoiled: Record<"keys_query" | "keys_claim", ByUser> = { keys_query: {}, keys_claim: {} };
  readonly #homeserver: Homeserver;

  constructor(server: KeyServer, machines: GhostSide["machines"], homeserver: Homeserver) {
    super(server, machines, GHOST);
    this.#homeserver = homeserver;
  }

  override async perform(requests: readonly OutgoingRequest[]): Promise<void> {
    for (const request of requests) {
      const actor = { ghost: this.ghost, deviceId: this.device };
      let outcome = await this.#homeserver.devices.submit(actor, request);
      // A notice or an answer is sent again later.
      for (let tries = 1; tries < 3 && outcome.kind === "retry"; tries++)
        outcome = await this.#homeserver.devices.submit(actor, request);
      assert.equal(outcome.kind, "ok", request.kind);
      if (outcome.kind === "ok") await this.machines.sent(this.ghost, request, outcome.value);
    }
  }
}

async function setUp(t: TestContext) {
  const server = new KeyServer();
  const { machines } = (await machinesScene(t)).start();
  const kinds = { query: "keys_query", claim: "keys_claim", upload: "keys_upload" } as const;
  const script: Script = ({ path, body }) => {
    const [, name = ""] = /\/keys\/([a-z]+)$/.exec(path) ?? [];
    const kind = kinds[name as keyof typeof kinds] ?? "to_device";
    const eventType = decodeURIComponent(/\/sendToDevice\/([^/]+)\//.exec(path)?.[1] ?? "");
    const asked = { kind, eventType, body: JSON.stringify(body) };
    if (kind === "keys_claim") {
      const { one_time_keys = {} } = body as { one_time_keys?: ByUser };
      const servers = [...new Set(Object.keys(one_time_keys).map((user) => serverOf(user as UserId)))];
      ghost.claims.push(servers);
      const failing = servers.find((one) => one in ghost.failing);
      if (failing !== undefined) return ghost.failing[failing] ?? {};
    }
    const answer = JSON.parse(server.answer(GHOST, "GHOST", asked)) as Record<string, ByUser>;
    if (kind === "keys_query" || kind === "keys_claim") {
      const keys = answer[kind === "keys_query" ? "device_keys" : "one_time_keys"] ?? {};
      for (const [user, spoiled] of Object.entries(ghost.spoiled[kind]))
        if (user in keys) keys[user] = spoiled;
    }
    return { body: answer };
  };
  const { url } = await scriptedHomeserver(t, script);
  const homeserver = new Homeserver({ url, asToken: "as", requestTimeoutMs: 5_000, clock: systemClock });
  t.after(() => homeserver.close());
  const ghost = new SpoiledGhost(server, machines, homeserver);
  await ghost.create();
  return { server, ghost, alice: await Person.join(server, ALICE) };
}

/** What is no map of devices. */
const NO_DEVICES = ["x", null, 7, true, []];

describe("keys of a hostile server", () => {
  it("values that are no keys in an answer to a query keep no answer from the others in any room [ENC-7] [DEL-10]", async (t) => {
    const { server, ghost, alice } = await setUp(t);
    for (const [index, devices] of NO_DEVICES.entries()) {
      const eve = `@eve${index}:evil.test`;
      await Person.join(server, eve);
      ghost.spoiled.keys_query[eve] = devices;
      const sealed = await ghost.say(ROOM, `answer ${index}`, ALICE, eve);
      await alice.track(GHOST);
      await alice.sync();
      const read = await alice.read(ROOM, GHOST, sealed);
      assert.deepEqual(read["content"], { msgtype: "m.text", body: `answer ${index}` });
      assert.deepEqual(await ghost.machines.outgoing(ghost.ghost), [], "it is not asked for again at once");
    }
  });

  it("values that are no keys in an answer to a claim keep no answer from the others [ENC-7] [DEL-10]", async (t) => {
    const { server, ghost, alice } = await setUp(t);
    const ids = [
      "nocolon",
      "",
      ":",
      "signed_curve25519:",
      "signed_curve25519:a b",
      "ed\u00e925519:AA",
      "\0:A",
    ];
    const spoiled = [
      ...NO_DEVICES,
      ...[...NO_DEVICES, ...ids.map((id) => ({ [id]: {} }))].map((keys) => ({ PHONE: keys })),
      ...NO_DEVICES.map((key) => ({ PHONE: { "signed_curve25519:AA": key } })),
      { ["D".repeat(100_000)]: {}, "\0": {}, "": {} },
    ];
    for (const [index, devices] of spoiled.entries()) {
      const eve = `@eve${index}:evil.test`;
      await Person.join(server, eve);
      ghost.spoiled.keys_claim[eve] = devices;
      const bob = await Person.join(server, `@bob${index}:a.test`);
      const sealed = await ghost.say(ROOM, `answer ${index}`, ALICE, eve, bob.user);
      for (const person of [alice, bob]) {
        await person.track(GHOST);
        await person.sync();
        const read = await person.read(ROOM, GHOST, sealed);
        assert.deepEqual(read["content"], { msgtype: "m.text", body: `answer ${index}` });
      }
    }
    assert.deepEqual(await ghost.machines.missingSessions(ghost.ghost, [ALICE as UserId]), []);
  });

  it("keys that are too many, or make the homeserver fail, in an answer to a claim keep no answer from the others [ENC-7] [DEL-10]", async (t) => {
    const { server, ghost, alice } = await setUp(t);
    const answers: ScriptedAnswer[] = [
      { status: 500, body: { errcode: "M_UNKNOWN", error: "Internal server error" } },
      { body: { one_time_keys: { "@eve:evil.test": "k".repeat(9 * 1024 * 1024) } } },
    ];
    for (const [index, answer] of answers.entries()) {
      const evil = `evil${index}.test`;
      ghost.failing[evil] = answer;
      const eve = await Person.join(server, `@eve:${evil}`);
      const others: Person[] = [];
      for (const other of ["a", "b", "c"]) others.push(await Person.join(server, `@p${index}:${other}.test`));
      // At first with others whose keys are claimed too; then she alone.
      for (const [part, members] of [
        [eve, ...others],
        [await Person.join(server, `@eve2:${evil}`)],
      ].entries()) {
        const said = `answer ${index}.${part}`;
        const users = [...members, ...others].map(({ user }) => user);
        const sealed = await ghost.say(ROOM, said, ALICE, ...users);
        for (const person of [alice, ...others]) {
          await person.track(GHOST);
          await person.sync();
          const read = await person.read(ROOM, GHOST, sealed);
          assert.deepEqual(read["content"], { msgtype: "m.text", body: said });
        }
      }
    }
    assert.ok(ghost.claims.length <= 2 * (7 + 3), `${ghost.claims.length} claims`);
  });

  it("do not make the ghost do without those of its own server, whose failure is its own [ENC-7]", async (t) => {
    const { ghost } = await setUp(t);
    ghost.failing["a.test"] = { status: 500, body: { errcode: "M_UNKNOWN" } };
    await assert.rejects(ghost.say(ROOM, "an answer", ALICE), /keys_claim/);
  });
});
