// The oracle of random faults finds each mistake that it is there to find.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { EventId, GhostMxid, RoomId } from "../../../src/domain/identifiers.ts";
import { Oracle, type Said } from "../../chaos/oracle.ts";

const ROOM = "!room" as RoomId;
const GHOST = "@agent_docs:a.test" as GhostMxid;

/** Two questions, asked in this order. */
function asked(): Oracle {
  const oracle = new Oracle();
  for (const name of ["first", "second"]) {
    const event = `$${name}` as EventId;
    oracle.inRoom(ROOM, event);
    oracle.asked({
      token: name,
      kind: "question",
      round: 0,
      room: ROOM,
      ghost: GHOST,
      event,
      answer: `about ${name}`,
    });
  }
  return oracle;
}

const reply = (name: string, more: Partial<Said> = {}): Said => ({
  event: `$answer-${name}`,
  room: ROOM,
  sender: GHOST,
  to: `$${name}`,
  kind: "answer",
  body: `It is known: about ${name}.`,
  ...more,
});

/** A question that was answered as it should be. */
function answer(oracle: Oracle, name: string): void {
  oracle.called(name);
  oracle.said(reply(name));
  oracle.task(name, `task-${name}`);
  oracle.audited({
    id: name,
    event: `$${name}`,
    outcome: "completed",
    reason: "answered",
    ingress: "transaction",
  });
}

function bothAnswered(): Oracle {
  const oracle = asked();
  answer(oracle, "first");
  answer(oracle, "second");
  return oracle;
}

const wrong = (oracle: Oracle) => oracle.judge().violations;

describe("the oracle of random faults", () => {
  it("finds nothing wrong with questions that were answered once and in order [CRA-2]", () => {
    assert.deepEqual(bothAnswered().judge(), {
      open: [],
      answered: 2,
      ended: 0,
      byCatchup: 0,
      overtaken: 0,
      violations: [],
    });
  });

  it("takes a notice for a visible end", () => {
    const oracle = asked();
    answer(oracle, "first");
    oracle.said(reply("second", { kind: "notice", body: "I could not ask." }));
    oracle.audited({
      id: "2",
      event: "$second",
      outcome: "failed",
      reason: "agent_unavailable",
      ingress: "transaction",
    });
    assert.deepEqual(oracle.judge(), {
      open: [],
      answered: 1,
      ended: 1,
      byCatchup: 0,
      overtaken: 0,
      violations: [],
    });
  });

  it("finds an answer in the room of a question that is canceled in the audit stream [CRA-2]", () => {
    for (const reason of ["source_redacted", "sender_canceled"]) {
      const oracle = asked();
      oracle.said(reply("first"));
      oracle.task("first", "task");
      oracle.audited({ id: "1", event: "$first", outcome: "canceled", reason, ingress: "transaction" });
      assert.match(wrong(oracle).join("\n"), /is canceled .* in the audit stream, and has 1 answers/);
    }
  });

  it("keeps a question open whose answer was withheld, although the audit stream says that it was answered [CRA-2]", () => {
    const oracle = asked();
    answer(oracle, "first");
    oracle.task("second", "task");
    oracle.audited({
      id: "2",
      event: "$second",
      outcome: "completed",
      reason: "answered",
      ingress: "transaction",
    });
    assert.deepEqual(
      oracle.judge().open.map(({ token }) => token),
      ["second"],
    );
  });

  it("keeps a question open that has no record in the audit stream", () => {
    const oracle = asked();
    answer(oracle, "first");
    oracle.said(reply("second"));
    oracle.task("second", "task");
    assert.deepEqual(
      oracle.judge().open.map(({ token }) => token),
      ["second"],
    );
  });

  const mistakes: Readonly<Record<string, readonly [(oracle: Oracle) => void, RegExp]>> = {
    "an answer that was posted twice": [
      (o) => o.said(reply("first", { event: "$again" })),
      /first .* has 2 of answer/,
    ],
    "a notice beside an answer": [
      (o) => o.said(reply("first", { event: "$n", kind: "notice" })),
      /has an answer and the notice/,
    ],
    "a task that was started twice": [(o) => o.task("first", "task-again"), /has 2 tasks at the agent/],
    "a second record in the audit stream": [
      (o) =>
        o.audited({
          id: "9",
          event: "$first",
          outcome: "completed",
          reason: "answered",
          ingress: "transaction",
        }),
      /has 2 records in the audit stream/,
    ],
    "an answer to another question": [
      (o) => o.said(reply("first", { body: "about second" })),
      /has the answer to another question/,
    ],
    "something said that replies to no question": [(o) => o.said(reply("third")), /replies to no question/],
  };
  for (const [what, [plant, expected]] of Object.entries(mistakes)) {
    it(`finds ${what} [CRA-2]`, () => {
      const oracle = bothAnswered();
      plant(oracle);
      assert.match(wrong(oracle).join("\n"), expected);
    });
  }

  it("finds a question that reached the agent before an earlier one of its room [CRA-2]", () => {
    const oracle = asked();
    answer(oracle, "second");
    answer(oracle, "first");
    assert.match(wrong(oracle).join("\n"), /question second .* reached the agent before question first/);
  });

  it("lets each bridge refuse a message that is no question, once [CRA-2]", () => {
    const oracle = bothAnswered();
    oracle.aside("$cancel");
    const refusal = (event: string, sender: string) =>
      oracle.said({
        event,
        room: ROOM,
        sender,
        to: "$cancel",
        kind: "notice",
        body: "Nothing was canceled.",
      });
    refusal("$1", GHOST);
    refusal("$2", "@agent_other:b.test");
    assert.deepEqual(wrong(oracle), []);
    refusal("$3", GHOST);
    assert.match(wrong(oracle).join("\n"), /\$cancel is refused more than once/);
  });

  it("takes a question that was caught up for later than those that came meanwhile, and no other [CRA-2]", () => {
    const oracle = asked();
    const audit = { outcome: "completed", reason: "answered" };
    for (const name of ["second", "first"]) {
      oracle.called(name);
      oracle.said(reply(name));
      oracle.task(name, name);
    }
    oracle.audited({ ...audit, id: "1", event: "$first", ingress: "recovered" });
    oracle.audited({ ...audit, id: "2", event: "$second", ingress: "transaction" });
    const counts = { answered: 2, ended: 0, byCatchup: 1, overtaken: 0 };
    assert.deepEqual(oracle.judge(), { open: [], ...counts, violations: [] });
  });

  it("counts a question that the homeserver delivered after a later one, and excuses no other order [CRA-2]", () => {
    const overtaken = (first: string | undefined, second: string | undefined) => {
      const oracle = asked();
      for (const [name, admittedAt] of [["second", second] as const, ["first", first] as const]) {
        oracle.called(name);
        oracle.said(reply(name));
        oracle.task(name, name);
        const audit = { id: name, event: `$${name}`, outcome: "completed", reason: "answered" };
        oracle.audited({ ...audit, ingress: "transaction", admittedAt });
      }
      const { overtaken, violations } = oracle.judge();
      return [overtaken, violations.length];
    };
    const [early, late] = ["2026-11-25T10:00:00.000Z", "2026-11-25T10:00:01.000Z"];
    assert.deepEqual(overtaken(late, early), [1, 0]);
    assert.deepEqual(overtaken(early, late), [0, 1]);
    assert.deepEqual(overtaken(early, early), [0, 1]);
    assert.deepEqual(overtaken(undefined, early), [0, 1]);
    assert.deepEqual(overtaken(late, undefined), [0, 1]);
  });

  it("takes a redacted question for ended, and a key that never came once its room is told [CRA-2]", () => {
    const oracle = new Oracle();
    const ask = (kind: "redact" | "withheld_key") =>
      oracle.asked({
        token: kind,
        kind,
        round: 0,
        room: ROOM,
        ghost: GHOST,
        event: `$${kind}` as EventId,
        answer: "",
      });
    ask("redact");
    ask("withheld_key");
    const audit = { id: "1", event: "$withheld_key", outcome: "expired", reason: "key_wait_elapsed" };
    oracle.audited({ ...audit, ingress: "transaction" });
    assert.deepEqual(
      oracle.judge().open.map(({ kind }) => kind),
      ["withheld_key"],
    );
    oracle.said({
      event: "$n",
      room: ROOM,
      sender: GHOST,
      to: undefined,
      kind: "notice",
      body: "I cannot read",
    });
    assert.deepEqual(oracle.judge(), {
      open: [],
      answered: 0,
      ended: 2,
      byCatchup: 0,
      overtaken: 0,
      violations: [],
    });
  });

  it("finds an answer without a request and without a task, and one that the audit stream calls failed", () => {
    const oracle = asked();
    oracle.said(reply("first"));
    oracle.audited({
      id: "1",
      event: "$first",
      outcome: "failed",
      reason: "agent_failed",
      ingress: "transaction",
    });
    assert.match(
      wrong(oracle).join("\n"),
      /no request about it was seen[\s\S]*the agent has no task of it[\s\S]*is failed \(agent_failed\)/,
    );
  });

  it("finds a repetition that comes after the question was judged [CRA-2]", () => {
    const oracle = bothAnswered();
    assert.deepEqual(wrong(oracle), []);
    oracle.said(reply("second", { event: "$late" }));
    assert.match(wrong(oracle).join("\n"), /second .* has 2 of answer/);
  });
});
