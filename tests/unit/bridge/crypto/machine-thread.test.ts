// How questions and answers travel between the bridge and a thread of machines.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  createMachineThread,
  createOutbox,
  ThreadEnded,
  type ThreadEvents,
} from "../../../../src/bridge/crypto/machine-thread.ts";
import { systemClock } from "../../../../src/domain/clock.ts";
import type { GhostMxid } from "../../../../src/domain/identifiers.ts";
import { ManualClock, settled } from "../../../support/manual-clock.ts";
import { run } from "../../../support/temporary.ts";

/** A thread that answers each question with how many came in the same message. */
const COUNTING = new URL(
  `data:text/javascript,${encodeURIComponent(`
    import { parentPort } from "node:worker_threads";
    parentPort.on("message", (messages) =>
      parentPort.postMessage(messages.map(({ id }) => ({ id, result: messages.length }))));`)}`,
);

/** A thread that answers what is asked of one ghost, and hangs at what is asked of another. */
const HANGING = new URL(
  `data:text/javascript,${encodeURIComponent(`
    import { parentPort } from "node:worker_threads";
    parentPort.on("message", (messages) => {
      for (const { id, ghost } of messages) {
        if (ghost === "@agent_hangs:a.test") for (;;);
        parentPort.postMessage([{ id, result: "answered" }]);
      }
    });`)}`,
);

function counting(on: ThreadEvents) {
  const policy = { senderDevices: "allow_all" as const, verifiedIdentities: [] };
  return createMachineThread({ databaseUrl: "", policy, clock: systemClock, threadEntry: COUNTING }, on);
}

describe("messages to a thread of machines", () => {
  it("calls of one turn go as one message, and each is answered", async () => {
    const thread = counting({ lost: () => {}, ended: () => {} });
    const ask = () => thread.ask({ do: "shut", ghost: "@agent_docs:a.test" as GhostMxid });
    assert.deepEqual(await Promise.all([ask(), ask(), ask()]), [3, 3, 3]);
    assert.equal(await ask(), 1);
    await thread.close();
  });

  it("a call that cannot be posted is refused alone, and its thread goes on", async () => {
    const ended: string[] = [];
    const on = { lost: () => {}, ended: () => void ended.push("ended") };
    const thread = counting(on);
    const ghost = "@agent_docs:a.test" as GhostMxid;
    const shut = () => thread.ask({ do: "shut", ghost });
    const deep = JSON.parse(`${"[".repeat(100_000)}1${"]".repeat(100_000)}`) as unknown;
    const call = (arg: unknown) => thread.ask({ do: "call", ghost, call: "track", args: [arg] });
    const answers = await Promise.allSettled([shut(), call(deep), call(() => 1), shut()]);
    assert.deepEqual(
      answers.map((answer) => (answer.status === "fulfilled" ? answer.value : answer.reason.kind)),
      [1, "refused", "refused", 1],
    );
    assert.equal(await shut(), 1);
    await thread.close();
    assert.deepEqual(ended, []);
  });

  it("a thread that leaves a call unanswered for two minutes is ended, which fails its calls, and another takes its place [DEL-9]", async () => {
    const clock = new ManualClock(0);
    const policy = { senderDevices: "allow_all" as const, verifiedIdentities: [] };
    let ends = 0;
    const ended = () => {
      ends += 1;
    };
    const on = { lost: () => {}, ended };
    const thread = createMachineThread({ databaseUrl: "", policy, clock, threadEntry: HANGING }, on);
    const ask = (name: string) => thread.ask({ do: "shut", ghost: `@agent_${name}:a.test` as GhostMxid });
    for (let minute = 0; minute < 5; minute++) {
      assert.equal(await ask("docs"), "answered", "one that answers goes on");
      for (let tick = 0; tick < 6; tick++) await clock.advance(10_000);
    }
    const calls = [ask("hangs"), ask("docs")];
    const failed = Promise.all(calls.map((call) => assert.rejects(call, ThreadEnded)));
    await settled();
    // A process that was stopped for an hour sees one check in that time.
    await clock.advance(3_600_000);
    for (let tick = 0; tick < 11; tick++) await clock.advance(10_000);
    assert.equal(ends, 0);
    await clock.advance(10_000);
    await failed;
    assert.equal(ends, 1);
    const next = ask("docs");
    await clock.advance(0);
    assert.equal(await next, "answered");
    await thread.close();
  });

  it("Outbox posts held messages in order and completely, when they are due or at once by flush", () => {
    const posted: (readonly number[])[] = [];
    const due: (() => void)[] = [];
    const outbox = createOutbox<number>(
      (messages) => posted.push(messages),
      (flush) => due.push(flush),
      () => assert.fail(),
    );
    outbox.put(1);
    outbox.put(2);
    assert.deepEqual([posted, due.length], [[], 1]);
    due[0]?.();
    outbox.put(3);
    outbox.flush();
    outbox.put(4);
    assert.deepEqual([posted, due.length], [[[1, 2], [3]], 3]);
    // What was due for those that have left already finds others, or nothing.
    due[1]?.();
    due[2]?.();
    assert.deepEqual(posted, [[1, 2], [3], [4]]);
  });

  it("the library, and its memory, is a thread's alone", async () => {
    // In a process of its own: here another test may have loaded it.
    const { stdout } = await run(process.execPath, [
      "--input-type=module",
      "--eval",
      `import { registerHooks } from "node:module";
       registerHooks({ resolve: (name, context, next) => { console.log(name); return next(name, context); } });
       await import(${JSON.stringify(new URL("../../../../src/bridge/create-encryption.ts", import.meta.url).href)});`,
    ]);
    const loaded = stdout.split("\n");
    assert.ok(loaded.includes("./machine-thread.ts"));
    assert.ok(!loaded.includes("@matrix-org/matrix-sdk-crypto-wasm"));
  });
});
