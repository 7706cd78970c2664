import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type DelegationRecord, findInvocation } from "../../../../lab/ask/logs.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const line = (azp: string | null, code: number) =>
  JSON.stringify({
    ...{ start_time: "2026-01-02T03:04:05.500Z", azp, route: "invoke:docs-qa", code },
    ...{ details: null, duration_ms: 3 },
  });

describe("finding an invocation in the access log", () => {
  it("the invocation of the asker's bridge is found among callers of the same moment [LAB-1]", async () => {
    const record = {
      a2a_attempted: true,
      admitted_at: "2026-01-02T03:04:05.000Z",
      time: "2026-01-02T03:04:06.000Z",
    } as DelegationRecord;
    const lines = [line(null, 401), line("org-c-applicant", 403), line("org-b-bridge", 200)];
    const clock = new ManualClock(Date.parse(record.time));
    const found = await findInvocation(
      () => lines,
      record,
      (azp) => azp === "org-b-bridge",
      clock,
    );
    assert.deepEqual([found?.azp, found?.code], ["org-b-bridge", 200]);
  });
});
