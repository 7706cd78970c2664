// A whole removal between two organisations on a running lab, typed by both operators as people would; the way
// back; and the removal of the partner that came back.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import type { Offboarded } from "../../../../lab/offboard/offboard.ts";
import type { Readmitted } from "../../../../lab/readmit/readmit.ts";
import { STAGE_NAMES } from "../../../../src/records/format/removal-stages.ts";
import { loadTrust } from "../../../../src/records/format/trust.ts";
import { verifyRecord } from "../../../../src/records/verify/verify-record.ts";
import { Fed } from "../../../support/lab-session.ts";

/** In the order of the record. */
const STAGES = STAGE_NAMES.flatMap((stage) => [`org-a ${stage}`, `org-b ${stage}`]);

describe("removal and re-admission in the lab", () => {
  describe("two operators", () => {
    let fed: Fed;
    const removals: Offboarded[] = [];

    before(async () => {
      fed = new Fed();
      await fed.up("--with-witness");
    });
    after(async () => {
      await fed.good("fed:down", "--purge");
      fed.remove();
    });

    async function remove(...args: string[]): Promise<Offboarded> {
      const removal = JSON.parse(await fed.good("fed:offboard", "--json", ...args)) as Offboarded;
      removals.push(removal);
      return removal;
    }

    it("a removal closes every plane on both sides in order, and nobody else loses a message [OFF-2]", async () => {
      const { stages, attempts, neighbours, programs } = await remove("PARTNER=org-b");
      assert.deepEqual(
        stages.map(({ organisation, stage }) => `${organisation} ${stage}`),
        STAGES,
      );
      for (const name of STAGE_NAMES.slice(1)) {
        const position = STAGE_NAMES.indexOf(name);
        const opened = stages.filter(({ stage }) => stage === name).map(({ openedAt }) => openedAt);
        const before = stages.filter(({ stage }) => stage === STAGE_NAMES[position - 1]);
        assert.ok(Math.min(...opened) >= Math.max(...before.map(({ closedAt }) => closedAt)), name);
      }
      for (const { stage, interruptionMs } of stages) assert.ok(interruptionMs !== null, stage);
      for (const { kind, lastRefusal, lastPass } of attempts) {
        assert.ok(lastRefusal !== null, `${kind} was never refused`);
        assert.ok(lastPass === null || lastPass.afterMs < lastRefusal.afterMs, `${kind} still gets through`);
      }
      for (const { organisation, messages, lost } of neighbours) {
        assert.ok(messages > 0, organisation);
        assert.equal(lost, 0, organisation);
      }
      for (const { restarted } of Object.values(programs)) assert.deepEqual(restarted, ["homeserver"]);
    });

    it("the record is signed by both organisations, and two verifiers accept it [OFF-3]", () => {
      const [removal] = removals;
      assert.ok(removal !== undefined);
      const { record, verified } = removal;
      assert.ok(verified.drawbridge && verified.foreign);
      assert.match(
        verified.foreignSaid,
        /^VERIFIED: org-a\.test:\d+ removed org-b\.test:\d+, run [0-9a-f]{32}\n/,
      );
      assert.deepEqual(
        record.signers.map(({ name }) => name),
        ["org-a", "org-b"],
      );
      const trust = loadTrust(
        join(fed.state, "lab", "default", "org-b", "federation", "records", "trust.yaml"),
      );
      const bytes = readFileSync(record.file);
      assert.equal(verifyRecord(bytes, trust).verified, true);
      const middle = Math.floor(bytes.length / 2);
      const altered = Buffer.from(bytes);
      altered[middle] = (bytes[middle] ?? 0) ^ 1;
      assert.equal(verifyRecord(altered, trust).verified, false);
    });

    it("fed:offboard refuses a partner that is removed already [OFF-2]", async () => {
      const { code, stderr } = await fed.task("fed:offboard");
      assert.equal(code, 2, stderr);
      assert.match(stderr, /org-b is removed already/);
    });

    it("a re-admission opens plane by plane, and questions are answered again [RDM-1]", async () => {
      const { planes, answered } = JSON.parse(await fed.good("fed:readmit", "--json")) as Readmitted;
      assert.equal(planes.length, 10);
      assert.deepEqual(
        answered.map(({ audit, room }) => [audit.outcome, room.encrypted]),
        [
          ["completed", false],
          ["completed", false],
          ["completed", true],
        ],
      );
      const again = JSON.parse(await fed.good("fed:readmit", "--json")) as Readmitted;
      assert.match(String(again.completeSince), /^\d{4}-\d{2}-\d{2}T/);
      assert.deepEqual(again.planes, []);
    });

    it("an emergency removes the re-admitted partner again [OFF-2]", async () => {
      const { record, verified, run } = await remove("PARTNER=org-b", "--emergency");
      assert.ok(verified.drawbridge && verified.foreign);
      assert.notEqual(run, removals[0]?.run);
      assert.notEqual(record.file, removals[0]?.record.file);
    });
  });
});
