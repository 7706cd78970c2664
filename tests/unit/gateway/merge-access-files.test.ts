import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { callersOf, keepQuotas } from "../../../src/gateway/merge-access-files.ts";
import { ConfigError } from "../../../src/runtime/load-yaml.ts";
import { type AdmissionInput, type AgentInput, testIntent } from "../../support/gateway.ts";

function agent(name: string, more: Partial<AgentInput> = {}): AgentInput {
  return {
    upstream: "http://127.0.0.1:4100",
    cardPath: `/agents/${name}/card.json`,
    invokePath: `/agents/${name}/rpc`,
    clients: ["org-b-client"],
    ...more,
  };
}

const QUOTAS = { default: { perMinute: 60, burst: 20 } };

function intent(agents: AdmissionInput["agents"], quotas: AdmissionInput["quotas"] = QUOTAS) {
  return testIntent({ agents, quotas });
}

function problems(agents: AdmissionInput["agents"]): string[] {
  try {
    intent(agents);
    return [];
  } catch (error) {
    assert.ok(error instanceof ConfigError);
    return error.message.split("\n");
  }
}

describe("mergeAccessRules", () => {
  it("each agent has its card, its callers, or both", () => {
    const { cardPath: _, ...uncarded } = agent("b");
    const { agents } = intent({ b: uncarded, a: agent("a") });
    assert.deepEqual(
      agents.map(({ name, card, invocation }) => [name, card?.cardPath, invocation?.clients]),
      [
        ["a", "/agents/a/card.json", ["org-b-client"]],
        ["b", undefined, ["org-b-client"]],
      ],
    );
  });

  it("a card path that is another agent's invocation path is refused, with both places", () => {
    assert.deepEqual(problems({ one: agent("one"), two: agent("two", { cardPath: "/agents/one/rpc" }) }), [
      "invocation.yaml:5: agents.one.invokePath: already used by cards.two.cardPath (publication.yaml:8)",
    ]);
  });

  it("two agents on one path are refused", () => {
    assert.deepEqual(problems({ one: agent("one"), two: agent("two", { invokePath: "/agents/one/rpc" }) }), [
      "invocation.yaml:10: agents.two.invokePath: already used by agents.one.invokePath (invocation.yaml:5)",
    ]);
    assert.deepEqual(
      problems({ one: agent("one"), two: agent("two", { cardPath: "/agents/one/card.json" }) }),
      ["publication.yaml:8: cards.two.cardPath: already used by cards.one.cardPath (publication.yaml:5)"],
    );
  });

  it("a path of an agent's HTTP+JSON operations is refused, and any other below it is not [PLN-5]", () => {
    const below = {
      one: agent("one", { httpJson: true }),
      two: agent("two", { invokePath: "/agents/one/rpc/tasks" }),
    };
    assert.match(
      problems(below).join(),
      /^invocation\.yaml:5: agents\.one\.invokePath: HTTP\+JSON is served below/,
    );
    const card = {
      one: agent("one", { httpJson: true }),
      two: agent("two", { cardPath: "/agents/one/rpc/tasks" }),
    };
    assert.match(problems(card).join(), /cards\.two\.cardPath/);
    const beside = {
      one: agent("one", { httpJson: true, cardPath: "/agents/one/rpc/card.json" }),
      two: agent("two", { invokePath: "/agents/one/rpc/two", cardPath: "/agents/one/rpc/tasksx" }),
    };
    assert.deepEqual(problems(beside), []);
  });

  for (const path of [
    "agents/x",
    "/",
    "/a/",
    "/a//b",
    "/a/../b",
    "/a/./b",
    "/a/%2e",
    "/a?b",
    "/a b",
    "/a;b",
    "/é",
  ]) {
    it(`the path ${path} is refused`, () => {
      assert.match(problems({ one: agent("one", { invokePath: path }) }).join(), /agents\.one\.invokePath/);
      assert.match(problems({ one: agent("one", { cardPath: path }) }).join(), /cards\.one\.cardPath/);
    });
  }

  for (const [what, upstream] of [
    ["a user in the upstream", "http://user@127.0.0.1:1"],
    ["an upstream with a query", "http://127.0.0.1:1/?a=b"],
    ["an https upstream", "https://127.0.0.1:1"],
  ] as const) {
    it(`${what} is refused`, () => {
      assert.match(problems({ one: agent("one", { upstream }) }).join(), /cards\.one\.upstream/);
    });
  }

  it("an empty list of clients is allowed: it closes the agent", () => {
    assert.deepEqual(problems({ one: agent("one", { clients: [] }) }), []);
  });

  const B = { perMinute: 6, burst: 2 };
  const WITH_B = { ...QUOTAS, clients: { "org-b-client": B } };

  it("the quota of a removed client is kept, so that no bucket is emptied [PLN-5]", () => {
    const current = intent({ one: agent("one") }, WITH_B);
    const next = intent({ one: agent("one", { clients: ["own-client"] }) });
    assert.deepEqual(keepQuotas(current, next).quotas, current.quotas);
    assert.deepEqual([...callersOf(keepQuotas(current, next))], ["own-client"]);
  });

  it("a changed quota of an admitted client counts at once, and unused quotas are removed with it", () => {
    const current = intent({ one: agent("one") }, WITH_B);
    const withoutOwn = intent({ one: agent("one") });
    assert.deepEqual(keepQuotas(current, withoutOwn).quotas, withoutOwn.quotas);
    for (const quotas of [
      { default: { perMinute: 61, burst: 20 } },
      { ...QUOTAS, clients: { "org-c-client": B } },
      { ...QUOTAS, clients: { "org-b-client": { perMinute: 7, burst: 2 } } },
    ]) {
      const next = intent({ one: agent("one", { clients: [] }) }, quotas);
      assert.deepEqual(keepQuotas(current, next).quotas, next.quotas);
    }
  });
});
