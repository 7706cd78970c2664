import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { NOTHING_ADMITTED } from "../../../src/bridge/ledger/admission-types.ts";
import type { ClaimedDelegation } from "../../../src/bridge/ledger/leases.ts";
import { Wakeups } from "../../../src/bridge/wakeups.ts";

describe("Wakeups", () => {
  it("tells the other processes at once, and then of all that follows together [DEL-9]", async () => {
    let pause = Promise.withResolvers<void>();
    const over = async () => {
      const before = pause;
      pause = Promise.withResolvers<void>();
      before.resolve();
      await new Promise((resolve) => setImmediate(resolve));
    };
    const wakeups = new Wakeups({ now: () => 0, sleep: () => pause.promise });
    const sent: string[] = [];
    wakeups.send = (message) => sent.push(message);
    for (let question = 0; question < 50; question++) wakeups.unanswered();
    wakeups.wake("delegations");
    assert.deepEqual(sent, ["notices"]);
    await over();
    assert.deepEqual(sent.slice(1), ["notices delegations"]);
    await over();
    assert.equal(sent.length, 2);
    wakeups.wake("inbox");
    assert.deepEqual(sent.slice(2), ["inbox"]);
  });

  it("looks for delegations when something was admitted or answered that is not claimed yet", () => {
    const wakeups = new Wakeups({ now: () => 0, sleep: async () => undefined });
    const sent: string[] = [];
    wakeups.send = (message) => sent.push(message);
    const claimed = { ...NOTHING_ADMITTED, admitted: 1, claimed: {} as ClaimedDelegation };
    wakeups.admitted(claimed);
    assert.deepEqual(sent, []);
    wakeups.admitted({ ...claimed, answers: 1 });
    assert.deepEqual(sent, ["delegations"]);
  });

  it("has a delegation that is to be canceled ended wherever it runs, at once [DEL-6] [DEL-9]", () => {
    const wakeups = new Wakeups({ now: () => 0, sleep: async () => undefined });
    const [sent, canceled]: [string[], string[]] = [[], []];
    wakeups.send = (message) => sent.push(message);
    const delegations = { wake: () => {}, cancel: (id: string) => void canceled.push(id) };
    const others = { envelopes: undefined, inbox: undefined, notices: undefined, memberships: undefined };
    wakeups.wakeables = { delegations, ...others };
    wakeups.admitted({ ...NOTHING_ADMITTED, canceled: ["7"] });
    assert.deepEqual(canceled, ["7"]);
    for (const message of sent.splice(0)) wakeups.receive(message);
    assert.deepEqual([canceled, sent], [["7", "7"], []]);
  });
});
