// What tests of an agent's questions begin with: an agent that asks, and the people in its room.
import type { TestContext } from "node:test";
import { conversation, lastSent } from "../../../support/conversation.ts";
import type {
  DelegationSetUp,
  DelegationSetUpOptions,
  delegationSuite,
} from "../../../support/delegation-suite.ts";
import { arrivals, claimEnvelope, envelope } from "../../../support/ledger.ts";

export const INPUT_REQUIRED = {
  kind: "input_required",
  questions: ["Which size?", "Which colour?"],
} as const;

export function personOf({ fixture, harness }: DelegationSetUp) {
  const { directory, clock } = harness.deps;
  const said = conversation({ ledger: fixture.ledger, directory, clock });
  return { ...said, lastSent: (purpose: string) => lastSent(fixture, purpose) };
}

/** What each test of a suite begins with: an agent that asks, and a question of a person to it. */
export function agentQuestions(setUpDelegation: ReturnType<typeof delegationSuite>) {
  return async (t: TestContext, options: DelegationSetUpOptions = {}) => {
    const made = await setUpDelegation(t, options);
    made.agent.behaviour.plan = INPUT_REQUIRED;
    const row = await made.admit();
    const bodies = () => made.harness.sent.map((send) => String(send.content["body"]));
    const admitEnvelope = async (name: string) => {
      await made.fixture.admit([], arrivals(envelope(name)));
      return await claimEnvelope(made.fixture.ledger, name);
    };
    const { harness } = made;
    const isPosted = () => row.state === "awaiting_input" && harness.returned.includes("recordAsked");
    /** How often a worker has given it back, to be looked at later. */
    const polls = () => harness.metrics.count("deferred:input_open");
    return { ...made, ...personOf(made), row, bodies, admitEnvelope, isPosted, polls };
  };
}
