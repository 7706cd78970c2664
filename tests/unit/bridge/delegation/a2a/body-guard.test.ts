import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import {
  type BodyFault,
  boundedBody,
  boundedEvents,
} from "../../../../../src/bridge/delegation/a2a/body-guard.ts";

function streamOf(chunks: readonly Uint8Array[], failing = false) {
  let canceled = false;
  let index = 0;
  const stream = new ReadableStream<Uint8Array>({
    pull(controller) {
      const chunk = chunks[index++];
      if (chunk !== undefined) controller.enqueue(chunk);
      else if (failing) controller.error(new Error("connection lost"));
      else controller.close();
    },
    cancel() {
      canceled = true;
    },
  });
  return { stream, isCanceled: () => canceled };
}

const bytes = (text: string) => Buffer.from(text, "utf8");

async function read(stream: ReadableStream<Uint8Array>): Promise<string> {
  return new Response(stream).text();
}

async function outcome(guard: (onFault: (fault: BodyFault) => void) => ReadableStream<Uint8Array>) {
  const faults: BodyFault[] = [];
  const text = await read(guard((fault) => faults.push(fault))).catch(() => undefined);
  return { text, faults };
}

/** Cuts a text into chunks at arbitrary byte positions. */
function cut(text: string, positions: readonly number[]): Uint8Array[] {
  const whole = bytes(text);
  const at = [...new Set(positions.map((position) => position % (whole.length + 1)))].sort((a, b) => a - b);
  return [0, ...at].map((start, index) => whole.subarray(start, at[index] ?? whole.length));
}

/** Counts the characters of the strings that are split or searched meanwhile: work, whatever the machine's speed. */
function countExaminedCharacters() {
  const { split, indexOf } = String.prototype;
  const count = {
    characters: 0,
    end: () => Object.assign(String.prototype, { split, indexOf }),
  };
  const counting = (method: (...args: never[]) => unknown) =>
    function (this: string, ...args: never[]): unknown {
      count.characters += this.length;
      return method.apply(this, args);
    };
  Object.assign(String.prototype, { split: counting(split), indexOf: counting(indexOf) });
  return count;
}

describe("bounds on an agent's body", () => {
  it("a stream of ever more empty events is given up, and other work runs while it is read [AGT-4]", async () => {
    const chunks = Array.from({ length: 20 }, () => bytes("data:{}\n\n".repeat(7_000)));
    let turns = 0;
    let isOver = false;
    const turn = () => {
      turns += 1;
      if (!isOver) setImmediate(turn);
    };
    turn();
    const sound = () => true;
    const { faults } = await outcome((on) => boundedEvents(streamOf(chunks).stream, 1_000_000, sound, on));
    isOver = true;
    assert.deepEqual(faults, ["broken"]);
    assert.ok(turns > 30, `${turns} turns of the event loop`);
  });

  it("a body passes whole up to its bound, and not one byte more", async () => {
    const chunks = [bytes("12345"), bytes("67890")];
    assert.deepEqual(await outcome((on) => boundedBody(streamOf(chunks).stream, 10, on)), {
      text: "1234567890",
      faults: [],
    });
    const source = streamOf([...chunks, bytes("!"), bytes("never read")]);
    assert.deepEqual(await outcome((on) => boundedBody(source.stream, 10, on)), {
      text: undefined,
      faults: ["too_large"],
    });
    assert.equal(source.isCanceled(), true);
  });

  it("a lost connection is distinguished from a malformed answer", async () => {
    const lost = await outcome((on) => boundedBody(streamOf([bytes("{")], true).stream, 10, on));
    assert.deepEqual(lost.faults, ["broken"]);
  });

  it("what is nested deeper than 128 levels does not pass, as a body or as an event", async () => {
    for (const depth of [127, 128, 5_000]) {
      const text = `{"a":${"[".repeat(depth)}${"]".repeat(depth)}}`;
      const faults = depth < 128 ? [] : ["garbage"];
      const body = await outcome((on) => boundedBody(streamOf([bytes(text)]).stream, 100_000, on));
      assert.deepEqual(body, { text: depth < 128 ? text : undefined, faults });
      const source = streamOf([bytes(`data: ${text}\n\n`)]).stream;
      const event = await outcome((on) => boundedEvents(source, 100_000, () => true, on));
      assert.deepEqual(event.faults, faults);
    }
  });

  it("of more than 65,536 lists, objects and members nothing passes, or is parsed; texts and numbers may be any [AGT-4]", async (t) => {
    const parsed = t.mock.method(JSON, "parse");
    const cases: [string, number, "too_large"?][] = [
      [`[${"{},".repeat(70_000)}{}]`, 0, "too_large"],
      [`{${Array.from({ length: 70_000 }, (_, index) => `"a${index}":0`).join(",")}}`, 0, "too_large"],
      [`[${"0,".repeat(70_000)}"${'[{:}] \\"'.repeat(70_000)}"]`, 1],
    ];
    for (const [text, times, fault] of cases) {
      const faults = fault === undefined ? [] : [fault];
      const body = await outcome((on) => boundedBody(streamOf([bytes(text)]).stream, 1_000_000, on));
      assert.deepEqual([body.faults, parsed.mock.callCount()], [faults, times]);
      const source = streamOf([bytes(`data: ${text}\n\n`)]).stream;
      const event = await outcome((on) => boundedEvents(source, 1_000_000, () => true, on));
      assert.deepEqual([event.faults, parsed.mock.callCount()], [faults, 2 * times]);
    }
  });

  it("of bytes that an object only claims nothing passes, in a part of A2A 1.0 or 0.3; the agent's own data does", async () => {
    const claim = { length: 1e9 };
    const parts: object[] = [{ raw: claim }, { file: { bytes: claim } }, { file: { fileWithBytes: claim } }];
    for (const part of [...parts, { data: { bytes: claim } }, { raw: "AAAA" }, "escaped"]) {
      const plain = JSON.stringify({ result: { status: { message: { parts: [part] } } } });
      const text = plain.replace('"escaped"', String.raw`{"ra\u0077":{"len\u0067th":1}}`);
      const faults = typeof part === "string" || parts.includes(part) ? ["garbage"] : [];
      const body = await outcome((on) => boundedBody(streamOf([bytes(text)]).stream, 1_000, on));
      assert.deepEqual(body.faults, faults);
      const source = streamOf([bytes(`data: ${text}\n\n`)]).stream;
      assert.deepEqual((await outcome((on) => boundedEvents(source, 1_000, () => true, on))).faults, faults);
    }
  });

  it("nothing passes of an event that was not looked at, such as data behind a byte order mark, or a body that is no event", async () => {
    for (const text of ["\ufeff\ufeffdata: <html>\n\n", '{"result": []}', ": a comment\n\n"]) {
      const source = streamOf([bytes(text)]).stream;
      const passed = await outcome((on) => boundedEvents(source, 1_000, () => true, on));
      assert.deepEqual(passed, { text: "", faults: [] });
    }
  });

  it("events of JSON pass, wherever the network cuts them", async () => {
    const event = fc.record(
      { id: fc.nat(), text: fc.string({ unit: "grapheme" }) },
      { noNullPrototype: true },
    );
    await fc.assert(
      fc.asyncProperty(
        fc.array(event, { maxLength: 6 }),
        fc.array(fc.nat(), { maxLength: 12 }),
        async (events, at) => {
          const text = events.map((each) => `data: ${JSON.stringify(each)}\r\n\r\n`).join(": a comment\n\n");
          const { text: passed, faults } = await outcome((on) =>
            boundedEvents(streamOf(cut(text, at)).stream, 100_000, () => true, on),
          );
          const received = (passed ?? "").split("\n").filter((line) => line.startsWith("data:"));
          assert.deepEqual(faults, []);
          assert.deepEqual(
            received.map((line) => JSON.parse(line.slice(5))),
            events,
          );
        },
      ),
    );
  });

  for (const [why, text, fault] of [
    ["that is no JSON", "data: <html>\n\n", "garbage"],
    ["that is no object", 'data: "text"\n\n', "garbage"],
    ["that is cut in half", 'data: {"a":', "broken"],
    ["over the bound", `data: {"a":"${"x".repeat(200)}"}\n\n`, "too_large"],
    ["over the bound in many lines", `${"data: 1\n".repeat(40)}\n`, "too_large"],
    ["that never ends its line", "x".repeat(200), "too_large"],
  ] as const) {
    it(`an event ${why} ends the stream`, async () => {
      const source = streamOf([bytes('data: {"first":1}\n\n'), bytes(text)]);
      const received = await outcome((on) => boundedEvents(source.stream, 100, () => true, on));
      assert.deepEqual(received, { text: undefined, faults: [fault] });
    });
  }

  it("an event that cannot be decoded does not pass", async () => {
    const received = await outcome((on) =>
      boundedEvents(streamOf([bytes("data: {}\n\n")]).stream, 100, () => false, on),
    );
    assert.deepEqual(received.faults, ["garbage"]);
  });

  it("a stream of small events without end is cut off", async () => {
    const chunks = Array.from({ length: 300 }, () => bytes(`data: {"a":"123456789"}\n\n`));
    const received = await outcome((on) => boundedEvents(streamOf(chunks).stream, 100, () => true, on));
    assert.deepEqual(received.faults, ["broken"]);
  });

  it("a line that comes byte by byte costs in proportion to its length [AGT-4]", async () => {
    const examined = async (length: number) => {
      const line = bytes(`data: {"a":"${"x".repeat(length)}"}\n\n`);
      const chunks = Array.from(line, (_, index) => line.subarray(index, index + 1));
      const count = countExaminedCharacters();
      try {
        const received = await outcome((on) =>
          boundedEvents(streamOf(chunks).stream, 100_000, () => true, on),
        );
        assert.deepEqual(received.faults, []);
      } finally {
        count.end();
      }
      return count.characters;
    };
    const [short, long] = [await examined(2_000), await examined(16_000)];
    assert.ok(long < 16 * short, `${short} characters examined of 2,000, ${long} of 16,000`);
  });

  it("a reader that cancels causes no fault", async () => {
    const faults: BodyFault[] = [];
    const source = new ReadableStream<Uint8Array>({
      start: (controller) => controller.enqueue(bytes("data: {}\n\n")),
    });
    const reader = boundedEvents(
      source,
      100,
      () => true,
      (fault) => faults.push(fault),
    ).getReader();
    await reader.read();
    await reader.cancel();
    await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(faults, []);
  });
});
