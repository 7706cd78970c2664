// Edits of encrypted questions whose keys come late.

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { RoomId } from "../../../../src/domain/identifiers.ts";
import { sealed } from "../../../support/fake-devices.ts";
import { question } from "../../../support/intake.ts";
import { T0 } from "../../../support/ledger.ts";
import { KEY_WAIT_MS, type Raw, setUp } from "./envelope-worker.ts";

describe("IntakeEnvelopeWorker", () => {
  describe("an edit of a question that waits for its key itself", () => {
    /** The relation stands outside the ciphertext, the new text inside. */
    const edit = (id: string, body: string, changes: Raw = {}, session = "session-1") => {
      const inside = { body: `* ${body}`, "m.new_content": { msgtype: "m.text", body } };
      const event = sealed(id, { origin_server_ts: T0 + Number(id.slice(1)), ...changes }, inside, session);
      const relation = { "m.relates_to": { rel_type: "m.replace", event_id: "$q" } };
      return { ...event, content: { ...event.content, ...relation } };
    };
    type Bridge = Awaited<ReturnType<typeof setUp>>;
    const keyCame = async ({ devices, worker }: Bridge) => {
      devices.sessions.add("session-1");
      await worker.keysCame(["!r" as RoomId]);
      await worker.queue.round();
    };
    const prompts = async ({ claim, clock }: Bridge) =>
      (await claim({ now: clock.now() })).map(({ sourceEventId, prompt }) => [sourceEventId, prompt?.text]);

    it("counts when the question is derived, whether they came together or not; of several the last one [DEL-6] [ENC-3]", async (t) => {
      const bridge = await setUp(t);
      await bridge.bring(sealed("q"), edit("e1", "what?"));
      await bridge.bring(edit("e3", "where?"));
      await bridge.bring(edit("e2", "which?"));
      await keyCame(bridge);
      assert.deepEqual(await prompts(bridge), [["$q", "where?"]]);
      await bridge.pass(3_000);
      assert.deepEqual(await bridge.states(), {
        $q: "derived",
        $e1: "derived",
        $e2: "derived",
        $e3: "derived",
      });
      assert.deepEqual(await prompts(bridge), [["$q", "where?"]]);
      assert.deepEqual(await bridge.order(), []);
    });

    it("counts although it could be read when it came [DEL-6] [ENC-3]", async (t) => {
      const bridge = await setUp(t);
      bridge.devices.sessions.add("session-2");
      await bridge.bring(sealed("q"));
      await bridge.bring(edit("e1", "what?", {}, "session-2"));
      await bridge.pass(5_000);
      await keyCame(bridge);
      assert.deepEqual(await prompts(bridge), [["$q", "what?"]]);
    });

    it("counts although its key comes late and that of its question came with both [DEL-6] [ENC-3]", async (t) => {
      const bridge = await setUp(t);
      bridge.devices.sessions.add("session-2");
      await bridge.bring(sealed("q", {}, {}, "session-2"), edit("e1", "what?"));
      await keyCame(bridge);
      assert.deepEqual(await prompts(bridge), [["$q", "what?"]]);
    });

    it("does not count as a replay, by another sender or from another room, nor holds up the question without its key [DEL-6] [ENC-9]", async (t) => {
      const bridge = await setUp(t);
      bridge.devices.sessions.add("session-2");
      await bridge.bring(sealed("q"));
      const replayed = edit("e1", "again", {}, "session-2");
      await bridge.bring(replayed);
      await bridge.rows(
        "INSERT INTO bridge_megolm_indices VALUES (sha256(convert_to($1, 'UTF8')), '$used', now())",
        [`!r ${replayed.content.ciphertext}`],
      );
      await bridge.bring(
        edit("e2", "mine", { sender: "@bob:a.test" }),
        edit("e3", "there", { room_id: "!other" }),
      );
      await bridge.bring(edit("e4", "without a key", {}, "session-3"));
      assert.deepEqual(Object.keys(await bridge.states()).sort(), ["$e1", "$e4", "$q"]);
      await keyCame(bridge);
      assert.deepEqual(await prompts(bridge), [["$q", "question q"]]);
    });

    it("ends after its question expired, and holds its room no longer than that may [DEL-1] [ENC-10]", async (t) => {
      const bridge = await setUp(t);
      await bridge.bring(sealed("q"), edit("e1", "what?"), question("behind"));
      await bridge.pass(60_000);
      assert.deepEqual(await bridge.order(), ["$behind"]);
      await bridge.pass(KEY_WAIT_MS, 30_000);
      const states = await bridge.states();
      assert.deepEqual([states["$q"], states["$e1"]], ["key_requests_exhausted", "key_wait_elapsed"]);
    });
  });
});
