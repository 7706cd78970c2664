import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readEvents } from "../../../../src/bridge/intake/read-events.ts";

describe("a redaction", () => {
  const redaction = (places: object, content: object) => ({
    ...{ type: "m.room.redaction", event_id: "$r", room_id: "!r", sender: "@alice:a.test" },
    ...{ origin_server_ts: 0, content, ...places },
  });
  const read = (places: object, content: object) => readEvents([redaction(places, content)]);

  it("names its event beside its content, or in it, or in both places alike [INT-6]", () => {
    for (const [places, content] of [
      [{ redacts: "$q" }, {}],
      [{}, { redacts: "$q" }],
      [{ redacts: "$q" }, { redacts: "$q" }],
    ] as const) {
      assert.partialDeepStrictEqual(read(places, content).events, [{ type: "redaction", redacts: "$q" }]);
    }
  });

  it("a redaction that names two events removes neither: which of them the homeserver has judged is not known [INT-6] [INT-7]", () => {
    for (const [places, content] of [
      [{ redacts: "$own" }, { redacts: "$others" }],
      [{ redacts: "$own" }, { redacts: 7 }],
      [{ redacts: null }, { redacts: "$others" }],
    ]) {
      const { events, malformed } = read(places ?? {}, content ?? {});
      assert.deepEqual([events, malformed.map(({ reason }) => reason)], [[], ["redacts"]]);
    }
  });
});
