// A containment of the partnership and its end, by the commands that operators type, while people go on asking.
// Invariant: the partnership is open again afterwards, or this says what stands in its way.

import type { Lab } from "../../lab/lab.ts";
import type { CompleteOrganisation } from "../../lab/organisations.ts";
import type { Progress } from "../../lab/progress.ts";
import { examine } from "../../lab/random-operations/examine.ts";
import { after, type Operation, PARTNERS } from "../../lab/random-operations/operations.ts";
import { perform } from "../../lab/random-operations/perform.ts";
import { systemClock } from "../../src/domain/clock.ts";

const QUIET: Progress = {
  doing: () => undefined,
  done: () => undefined,
  note: () => undefined,
  elapsedMs: () => systemClock.now(),
};

/** @returns what does not hold while the partner is contained, and after that */
export async function containAndRestore(lab: Lab, by: CompleteOrganisation): Promise<readonly string[]> {
  const wrong: string[] = [];
  let partnership = PARTNERS;
  for (const act of ["contain", "restore"] as const) {
    const operation: Operation = { act, by };
    partnership = after(partnership, operation);
    await perform(lab, operation, partnership, QUIET);
    if (act === "contain") wrong.push(...(await examine(lab, partnership)));
  }
  return wrong;
}
