// The faults and questions of a round are data that a seed repeats.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  AGENT_FAULTS,
  ASK_KINDS,
  BRIDGES,
  LINKS,
  nameOf,
  ROOMS,
  roundOf,
  SERVERS,
  TOPICS,
  titleOf,
} from "../../chaos/schedule.ts";

const rounds = (seed: number, count: number) =>
  Array.from({ length: count }, (_, number) => roundOf(seed, number));

describe("the schedule of random faults", () => {
  it("a seed gives the same rounds again, whatever the length of the run [CRA-2]", () => {
    assert.deepEqual(rounds(7, 20), rounds(7, 40).slice(0, 20));
    assert.notDeepEqual(rounds(7, 20), rounds(8, 20));
    assert.equal(new Set(rounds(7, 200).map((round) => JSON.stringify(round.faults))).size, 200);
  });

  it("a thousand rounds kill every program, ten thousand times in total, and have every other fault [CRA-2]", () => {
    const faults = rounds(1, 1_000).flatMap((round) => round.faults);
    const kills = faults.flatMap((fault) => (fault.kind === "kill" ? [fault.target] : []));
    assert.ok(kills.length >= 10_000, `${kills.length} kills`);
    for (const server of SERVERS) assert.ok(kills.filter((target) => target === server).length >= 15, server);
    const names = new Set(faults.map(nameOf));
    for (const fault of AGENT_FAULTS) assert.ok(names.has(`agent answers ${fault}`));
    for (const link of LINKS) assert.ok(names.has(`cut ${link}`), link);
    for (const bridge of BRIDGES) assert.ok(names.has(`freeze ${bridge}`) && names.has(`clock ${bridge}`));
    assert.ok(names.has("contain"));
    const asked = new Set(rounds(1, 1_000).flatMap(({ questions }) => questions.map(({ kind }) => kind)));
    assert.deepEqual([...asked].sort(), [...ASK_KINDS].sort());
  });

  it("only questions in encrypted rooms have keys that come late or never [CRA-2]", () => {
    const questions = rounds(2, 300).flatMap((round) => round.questions);
    const keys = questions.filter(({ kind }) => kind === "late_key" || kind === "withheld_key");
    assert.ok(keys.length > 0 && keys.every(({ room }) => room % 2 === 1));
  });

  it("faults and questions are in the order of their times, and name rooms and topics that there are", () => {
    for (const { faults, questions } of rounds(3, 200)) {
      for (const list of [faults, questions]) {
        const times = list.map(({ atMs }) => atMs);
        assert.deepEqual(
          times,
          times.toSorted((one, other) => one - other),
        );
      }
      assert.ok(questions.length > 0 && questions.every(({ room, topic }) => room < ROOMS && topic < TOPICS));
    }
  });

  it("a round's title counts its kills", () => {
    const kill = { kind: "kill", atMs: 1 } as const;
    const faults = [
      { ...kill, target: "agent" } as const,
      ...[1, 2].map(() => ({ ...kill, target: "bridge-1" }) as const),
    ];
    assert.equal(titleOf(faults), "kill agent, kill bridge-1 ×2");
  });
});
