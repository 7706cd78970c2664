// Deep, wide and odd JSON through the whole intake, with the cloning that a machine's thread needs.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import fc from "fast-check";
import type { DeviceChanges } from "../../../../src/bridge/matrix/device-changes.ts";
import type { GhostMxid } from "../../../../src/domain/identifiers.ts";
import { FakeDevices, keyFor, sealed } from "../../../support/fake-devices.ts";
import { intakeFixture, question } from "../../../support/intake.ts";
import { ghost } from "../../../support/ledger.ts";
import { serverOfFile } from "../../../support/test-server.ts";

await serverOfFile();

/** Devices whose parts are cloned, as for a thread; those of `elsewhere` belong to another process. */
class ClonedDevices extends FakeDevices {
  override async receive(changes: ReadonlyMap<GhostMxid, DeviceChanges>) {
    this.received.push(...structuredClone([...changes.values()]));
  }
  override owns(of?: GhostMxid): boolean {
    return of !== ghost("elsewhere");
  }
}

async function setUp(t: TestContext) {
  const devices = new ClonedDevices(["docs", "elsewhere"]);
  devices.onDecrypt = (event) => {
    structuredClone(event);
    return { kind: "missing_key", withheld: undefined };
  };
  const recent = { keep: () => {} };
  const encryption = { devices, takesPart: true, plainInEncrypted: true, keyWaitMs: 60_000, recent };
  const fixture = await intakeFixture(t, {
    ...{ agents: ["docs", "elsewhere"], encryption, room: 100_000 },
    allowedServers: ["a.test", "b.test"],
  });
  return { devices, fixture };
}

const lists = (depth: number) => `${"[".repeat(depth)}1${"]".repeat(depth)}`;
const objects = (depth: number) => `${'{"a":'.repeat(depth)}1${"}".repeat(depth)}`;
const DEEP = [129, 900, 3_300, 6_000, 200_000].flatMap((depth) => [lists(depth), objects(depth)]);

/** Puts JSON text where a marker stands. */
const withText = (value: unknown, text: string) =>
  JSON.stringify(value).replaceAll('"THE_MARKER"', () => text);
const MARKER = "THE_MARKER";

const toDevice = (name: string, content: unknown) => ({
  type: "m.room.encrypted",
  sender: "@mallory:b.test",
  to_user_id: ghost(name),
  to_device_id: "DEVICE",
  content,
});

describe("JSON from outside through the intake", () => {
  it("an event or a message that is nested too deep is left out alone, and its transaction is taken [INT-7]", async (t) => {
    const { devices, fixture } = await setUp(t);
    const expected: string[] = [];
    for (const [index, deep] of DEEP.entries()) {
      const body = {
        events: [
          question(`deep${index}`, {}, { x: MARKER }),
          sealed(`sealed${index}`, { unsigned: { x: MARKER } }),
          question(`good${index}`),
        ],
        "de.sorunome.msc2409.to_device": [
          toDevice("docs", { x: MARKER }),
          toDevice("elsewhere", { x: MARKER }),
          ...keyFor()["de.sorunome.msc2409.to_device"],
          toDevice("elsewhere", { good: true }),
        ],
        "org.matrix.msc3202.device_lists": { changed: ["@alice:a.test", MARKER], left: MARKER },
        "org.matrix.msc3202.device_one_time_keys_count": { [ghost("docs")]: { DEVICE: { x: MARKER, y: 3 } } },
        "org.matrix.msc3202.device_unused_fallback_key_types": { [ghost("docs")]: { DEVICE: [MARKER, "k"] } },
        other: MARKER,
      };
      const text = withText(body, deep);
      // Of a long body, what has so many values is left out before it is read.
      expected.push(...(text.length > 256 * 1024 ? ["content"] : ["too_deep", "too_deep"]));
      const answer = await fixture.put(`t${index}`, text);
      assert.equal(answer.status, 200, `${deep.length} bytes`);
      assert.equal(devices.received.at(-1)?.toDevice.length, 1);
    }
    const asked = await fixture.rows("SELECT matrix_event_id AS event FROM bridge_delegations ORDER BY id");
    assert.deepEqual(
      asked.map((row) => row["event"]),
      DEEP.map((_, index) => `$good${index}`),
    );
    const malformed = await fixture.rows("SELECT reason FROM bridge_malformed_events");
    assert.deepEqual(
      malformed.map((row) => row["reason"]),
      expected,
    );
    const mail = await fixture.rows("SELECT changes FROM bridge_device_inbox");
    assert.deepEqual(
      mail.map((row) => JSON.parse(String(row["changes"])).toDevice.length),
      DEEP.map(() => 1),
    );
  });

  it("of a message for another process's device nothing is kept unless an agent allows its sender's server, and what is dropped is counted [DEL-10] [ENC-10]", async (t) => {
    const { fixture } = await setUp(t);
    const senders = [
      "@mallory:c.test",
      "@agent_docs:a.test",
      "@carol:b.test",
      "b.test",
      "@eve:b.test.c.test",
    ];
    const to_device = senders.map((sender) => ({ ...toDevice("elsewhere", {}), sender }));
    assert.equal((await fixture.put("t1", JSON.stringify({ events: [], to_device }))).status, 200);
    const mail = await fixture.rows("SELECT changes FROM bridge_device_inbox");
    assert.deepEqual(
      mail.map((row) =>
        JSON.parse(String(row["changes"])).toDevice.map((one: { sender: string }) => one.sender),
      ),
      [["@agent_docs:a.test", "@carol:b.test"]],
    );
    const refused = { events: [], to_device: to_device.slice(0, 1) };
    assert.equal((await fixture.put("t2", JSON.stringify(refused))).status, 200);
    assert.equal((await fixture.rows("SELECT FROM bridge_device_inbox")).length, 1);
    const { values } = await fixture.metrics.toDeviceRefused.get();
    assert.deepEqual(
      values.map(({ value }) => value),
      [3],
    );
  });

  it("every transaction that is JSON with a list of events is answered 200, whatever is in it [INT-7]", async (t) => {
    const { fixture } = await setUp(t);
    const odd = fc.oneof(
      fc.json({ maxDepth: 4 }),
      fc.constantFrom(
        '{"__proto__":{"x":1},"constructor":1,"toString":null,"valueOf":null}',
        '"\\u0000\\ud800"',
        "1e999",
        "-0",
        '{"a":1,"a":2}',
        `[${"[],".repeat(20_000)}1]`,
        `{${Array.from({ length: 20_000 }, (_, index) => `"k${index}":{}`).join(",")}}`,
      ),
      fc
        .tuple(fc.integer({ min: 1, max: 10_000 }), fc.constantFrom(lists, objects))
        .map(([n, made]) => made(n)),
    );
    const places = fc.constantFrom(
      { events: [MARKER, question("a", { event_id: MARKER })] },
      { events: [question("b", { content: MARKER })] },
      { events: [question("c", {}, { body: MARKER }), question("d", {}, { "m.mentions": MARKER })] },
      { events: [question("e", {}, { "m.relates_to": MARKER, msgtype: MARKER })] },
      { events: [question("f", { type: MARKER }), question("g", { sender: MARKER, room_id: MARKER })] },
      {
        events: [
          question("h", { type: "m.room.member", state_key: MARKER, content: { membership: MARKER } }),
        ],
      },
      { events: [question("i", { type: "m.room.redaction", redacts: MARKER, content: {} })] },
      { events: [sealed("j", { content: MARKER }), sealed("k", { unsigned: MARKER, extra: MARKER })] },
      { events: [], to_device: MARKER },
      { events: [], to_device: [MARKER, toDevice("docs", MARKER), toDevice("elsewhere", { x: MARKER })] },
      { events: [], device_lists: MARKER, "org.matrix.msc3202.device_one_time_keys_count": MARKER },
      { events: [], device_lists: { changed: [MARKER], left: MARKER } },
    );
    let transactions = 0;
    await fc.assert(
      fc.asyncProperty(places, odd, async (place, text) => {
        const answer = await fixture.put(`t${transactions++}`, withText(place, text));
        assert.equal(answer.status, 200);
      }),
      { numRuns: 200 },
    );
  });
});
