// The bridge's worker and agents on the Python SDK of A2A: one of protocol 0.3, and one of 1.0 that serves 0.3 too.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { setTimeout as realPause } from "node:timers/promises";
import { conversation, lastSent } from "../../../support/conversation.ts";
import { type CardOptions, cardOf } from "../../../support/delegation.ts";
import { type DelegationSetUp, delegationSuite } from "../../../support/delegation-suite.ts";
import { type PythonSdk, pythonWith, startPythonAgent } from "../../../support/python.ts";

type Spoken = Required<Pick<CardOptions, "binding" | "version">>;

const SPOKEN: Readonly<Record<PythonSdk, readonly Spoken[]>> = {
  "0.3": [
    { binding: "JSONRPC", version: "0.3" },
    { binding: "HTTP+JSON", version: "0.3" },
  ],
  "1.0": [
    { binding: "JSONRPC", version: "1.0" },
    { binding: "HTTP+JSON", version: "1.0" },
    { binding: "JSONRPC", version: "0.3" },
    { binding: "HTTP+JSON", version: "0.3" },
  ],
};
/** Between two looks; the agent works in real time. */
const POLL_MS = 10;

for (const sdk of ["0.3", "1.0"] as const) {
  describe(`an agent on the Python SDK of A2A ${sdk}`, () => {
    const setUpDelegation = delegationSuite();
    let url = "";
    const closing: (() => unknown)[] = [];
    after(async () => {
      for (const close of closing.reverse()) await close();
    });
    before(async () => {
      const t = { after: (close: () => unknown) => closing.push(close) };
      url = await startPythonAgent(t, await pythonWith(t, `python-agent-${sdk}.txt`), sdk);
    });

    for (const { binding, version } of SPOKEN[sdk]) {
      for (const streaming of [true, false]) {
        const how = `by ${binding} ${version} and ${streaming ? "a stream" : "polling"}`;
        const path = binding === "JSONRPC" ? "/rpc" : "/rest";
        const card = cardOf("http://replaced", { streaming, binding, version });
        const offered = () => ({
          harness: {
            card: {
              ...card,
              supportedInterfaces: [
                { url: `${url}${path}`, protocolBinding: binding, protocolVersion: version },
              ],
            },
          },
        });
        const until = (
          { harness }: Pick<DelegationSetUp, "harness">,
          holds: () => boolean | Promise<boolean>,
        ) =>
          harness.until(async () => {
            await realPause(POLL_MS);
            return await holds();
          });

        it(`answers ${how}, its chunks as one text [DEL-7]`, async (t) => {
          const made = await setUpDelegation(t, offered());
          const row = await made.admit();
          made.harness.worker().start();
          await until(made, () => row.outcome !== undefined);
          assert.deepEqual(row.outcome, { state: "completed", stage: "reply", reason: "answered" });
          assert.deepEqual(
            made.harness.sent.map(({ content }) => content["body"]),
            [streaming ? "the answer" : "the \n\nanswer"],
          );
        });

        it(`asks back ${how}, and goes on in the same task [DEL-6] [DEL-7]`, async (t) => {
          const made = await setUpDelegation(t, offered());
          const { harness, fixture } = made;
          const row = await made.admit("ask");
          const worker = harness.worker();
          worker.start();
          await until(made, async () => {
            const [question] = await fixture.rows(
              "SELECT event_id FROM bridge_sends WHERE purpose = 'question'",
            );
            const isPosted = typeof question?.["event_id"] === "string";
            return isPosted && row.state === "awaiting_input" && row.dueAt > harness.clock.now();
          });
          assert.match(String(harness.sent[0]?.content["body"]), /^Which one\?/);
          const { directory, clock } = harness.deps;
          const person = conversation({ ledger: fixture.ledger, directory, clock });
          await person.say("this", "this one", { replyTo: await lastSent(fixture, "question") });
          worker.wake();
          await until(made, () => row.outcome !== undefined);
          assert.deepEqual(row.outcome, { state: "completed", stage: "reply", reason: "answered" });
          assert.match(String(harness.sent[1]?.content["body"]), /^you said \s*this one$/);
        });

        it(`is canceled ${how} [DEL-6] [DEL-7]`, async (t) => {
          const made = await setUpDelegation(t, offered());
          const { harness, fixture, metrics } = { ...made, metrics: made.harness.metrics };
          const row = await made.admit("slow");
          const worker = harness.worker();
          worker.start();
          await until(made, async () => {
            const [status] = await fixture.rows("SELECT report FROM bridge_statuses");
            return row.state === "following" && status?.["report"] instanceof Buffer;
          });
          const { directory, clock } = harness.deps;
          const person = conversation({ ledger: fixture.ledger, directory, clock });
          await person.say("c", "!cancel", { replyTo: row.event });
          worker.wake();
          await until(made, () => row.outcome !== undefined);
          assert.equal(row.outcome?.reason, "sender_canceled");
          assert.equal(metrics.count("call:cancel/ok"), 1);
        });
      }
    }
  });
}
