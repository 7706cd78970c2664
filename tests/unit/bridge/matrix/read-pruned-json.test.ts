// Reading an answer without holding more of it than a bound.
import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { describe, it } from "node:test";
import fc from "fast-check";
import { type PruneBounds, readPruned } from "../../../../src/bridge/matrix/read-pruned-json.ts";

const WIDE: PruneBounds = { what: "list_elements", elementBytesMax: 1e9, bytesMax: 1e9, readBytesMax: 1e9 };

/** A body in pieces of these lengths, again and again. */
function bodyOf(text: string, lengths: readonly number[]) {
  const bytes = Buffer.from(text);
  const chunks: Buffer[] = [];
  for (let from = 0, turn = 0; from < bytes.length; turn++) {
    const length = lengths[turn % lengths.length] ?? 1;
    chunks.push(bytes.subarray(from, from + length));
    from += length;
  }
  return Readable.from(chunks);
}

const thinned = (value: unknown, bounds: Partial<PruneBounds>, lengths: readonly number[] = [7]) =>
  readPruned(bodyOf(JSON.stringify(value), lengths), { ...WIDE, ...bounds });

const lengths = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 5 });

describe("bounded reading of long lists", () => {
  it("an answer within the bounds is read unchanged, however it is chunked", async () => {
    const anything = fc.oneof(
      fc.jsonValue(),
      fc.record({ next_batch: fc.string(), to_device: fc.record({ events: fc.array(fc.jsonValue()) }) }),
    );
    await fc.assert(
      fc.asyncProperty(anything, lengths, async (value, pieces) => {
        assert.equal(await thinned(value, {}, pieces), JSON.stringify(value));
      }),
    );
  });

  it("only the objects of a list that are too large are left out [ENC-8]", async () => {
    const message = fc.record({ type: fc.string(), content: fc.dictionary(fc.string(), fc.jsonValue()) });
    await fc.assert(
      fc.asyncProperty(
        fc.array(message, { maxLength: 12 }),
        fc.integer({ min: 2, max: 120 }),
        lengths,
        async (events, elementBytesMax, pieces) => {
          const value = { next_batch: "s1", to_device: { events }, device_lists: { changed: ["@a:a.test"] } };
          const isKept = (one: unknown) => Buffer.byteLength(JSON.stringify(one)) <= elementBytesMax;
          const expected = {
            ...value,
            to_device: { events: events.map((one) => (isKept(one) ? one : null)) },
          };
          assert.equal(await thinned(value, { elementBytesMax }, pieces), JSON.stringify(expected));
        },
      ),
    );
  });

  const many = { next_batch: "s1", to_device: { events: Array.from({ length: 50 }, (_, n) => ({ n })) } };

  it("objects beyond the total bound are left out, and the answer stays valid JSON", async () => {
    const text = await thinned(many, { bytesMax: 300 });
    const read = JSON.parse(text ?? "") as typeof many;
    assert.equal(read.to_device.events.length, 50);
    assert.deepEqual(read.to_device.events.slice(0, 2), [{ n: 0 }, { n: 1 }]);
    assert.equal(read.to_device.events.at(-1), null);
  });

  it("an endless list is cut, and what was read of it is kept", async () => {
    const read = JSON.parse((await thinned(many, { readBytesMax: 100 })) ?? "") as typeof many;
    assert.equal(read.next_batch, "s1");
    assert.ok(read.to_device.events.length < 20);
    assert.deepEqual(read.to_device.events[0], { n: 0 });
    assert.equal(read.to_device.events.at(-1), null);
  });

  it("of named values the names are kept, and an answer of which names would be missing is not", async () => {
    const profile = { display_name: "x", avatar: { of: [{ any: "depth" }] } };
    const joined = { "@a:a.test": profile, '@b\\"{:a.test': {}, "@c:a.test": profile };
    const names = { what: "named_values", elementBytesMax: 0 } as const;
    await fc.assert(
      fc.asyncProperty(lengths, async (pieces) => {
        const read = JSON.parse((await thinned({ joined, more: [{}] }, names, pieces)) ?? "");
        assert.deepEqual(Object.keys(read.joined), Object.keys(joined));
        assert.deepEqual([...new Set(Object.values(read.joined))], [null]);
        assert.deepEqual(read.more, [{}]);
      }),
    );
    assert.equal(await thinned({ joined }, { ...names, readBytesMax: 60 }), undefined);
  });

  it("of rooms the large ones are left out, and an answer of which rooms would be missing is not read", async () => {
    const room = { invite_state: { events: [{ of: { any: "depth" } }] } };
    const rooms = { join: { "!a": { n: 1 } }, invite: { "!b": room, "!c": {} }, leave: { "!d": room } };
    const bounds = { what: "rooms", elementBytesMax: 20 } as const;
    await fc.assert(
      fc.asyncProperty(lengths, async (pieces) => {
        const read = JSON.parse((await thinned({ rooms, next_batch: "s1" }, bounds, pieces)) ?? "");
        const expected = { join: rooms.join, invite: { "!b": null, "!c": {} }, leave: { "!d": null } };
        assert.deepEqual(read, { rooms: expected, next_batch: "s1" });
      }),
    );
    assert.equal(await thinned({ rooms }, { ...bounds, readBytesMax: 60 }), undefined);
  });

  it("of a list's objects what is too large in them is left out, and nothing for the length of the others", async () => {
    const events = Array.from({ length: 9 }, (_, n) => ({
      n,
      content: { n },
      unsigned: { of: [{ long: "x".repeat(90) }] },
    }));
    const bounds = { what: "element_members", elementBytesMax: 50, bytesMax: 500 } as const;
    await fc.assert(
      fc.asyncProperty(lengths, async (pieces) => {
        const read = JSON.parse((await thinned({ events }, bounds, pieces)) ?? "");
        assert.deepEqual(read, { events: events.map((event) => ({ ...event, unsigned: null })) });
      }),
    );
    assert.equal(await thinned({ events }, { ...bounds, bytesMax: 300 }), undefined);
  });

  it("of a list's objects, or in them, and of rooms what has too many values is left out, however short it is [ENC-8] [INT-7]", async () => {
    const dense = Array.from({ length: 1_100 }, () => ({ a: {} }));
    const plain = { of: Array.from({ length: 3_000 }, (_, n) => `"{[:${n}`) };
    const messages = [{ content: plain }, { content: dense }, { content: { of: dense } }, { content: plain }];
    const [events, members] = [{ to_device: { events: messages } }, { events: messages }];
    const [first, , , last] = messages;
    assert.deepEqual(JSON.parse((await thinned(events, {}, [1_000])) ?? ""), {
      to_device: { events: [first, null, null, last] },
    });
    assert.deepEqual(JSON.parse((await thinned(members, { what: "element_members" }, [1_000])) ?? ""), {
      events: [first, { content: null }, { content: null }, last],
    });
    // Many members of one event count together, and not with those of another.
    const half = Array.from({ length: 700 }, () => ({ a: 0 }));
    const event = { a: half, b: half, content: plain };
    assert.deepEqual(
      JSON.parse((await thinned({ events: [event, event] }, { what: "element_members" }, [1_000])) ?? ""),
      { events: [event, event].map((one) => ({ ...one, b: null })) },
    );
    const rooms = { rooms: { invite: { "!a": { of: dense }, "!b": plain } } };
    assert.deepEqual(JSON.parse((await thinned(rooms, { what: "rooms" }, [1_000])) ?? ""), {
      rooms: { invite: { "!a": null, "!b": plain } },
    });
  });

  it("an event that itself has too many members is left out as a whole, and no list of names is [INT-7]", async () => {
    const members = (count: number) =>
      Object.fromEntries(Array.from({ length: count }, (_, n) => [`m${n}`, n]));
    const [plain, most, dense] = [{ content: { n: 1 } }, members(2_048), members(2_049)];
    const events = [plain, { ...dense, content: { n: 1 } }, most, plain];
    const body = { events, counts: { "@a:a.test": { DEVICE: members(50) } } };
    for (const pieces of [[1_000], [499, 3]]) {
      const read = JSON.parse((await thinned(body, { what: "element_members" }, pieces)) ?? "");
      assert.deepEqual(read, { ...body, events: [plain, null, most, plain] });
    }
    const rooms = { rooms: { join: dense } };
    assert.deepEqual(JSON.parse((await thinned(rooms, { what: "rooms" }, [1_000])) ?? ""), rooms);
  });

  it("an answer without a list is not read beyond the bound", async () => {
    assert.equal(await thinned({ a: "x".repeat(1_000) }, { bytesMax: 100 }), undefined);
    assert.equal(await thinned("[".repeat(1_000), { bytesMax: 100 }), undefined);
  });
});
