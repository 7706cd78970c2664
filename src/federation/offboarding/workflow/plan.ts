// What is left of a removal, stage by stage, and what each would change.
import { type Plan, plan } from "../../workflow/plan.ts";
import { removal } from "../../workflow/procedure.ts";
import type { OffboardingContext } from "../run/context.ts";
import { counterpartyOf } from "../run/run.ts";
import { withRun } from "./step.ts";
import { viewOf } from "./view.ts";

const LEFT: readonly string[] = ["pending", "closing"];

export function planRemoval(
  context: OffboardingContext,
  named?: string,
): Promise<Plan & { readonly run: string }> {
  return withRun(context, named, async (run, { parties }) => {
    const states = new Map<string, string>(
      viewOf(run, parties).stages.map(({ stage, own }) => [stage, own.state]),
    );
    const left = await plan(context.federation, removal(run.kind), counterpartyOf(run), ({ name }) => {
      const state = states.get(name) ?? "";
      return run.ended === null && LEFT.includes(state) ? state : undefined;
    });
    return { run: run.run, ...left };
  });
}
