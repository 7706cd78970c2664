// drawbridge readmission plan: what is left, and what each step would change.
import { type PlannedStep, planReadmission } from "../../federation/readmission/plan.ts";
import { roomLines } from "../../federation/readmission/rooms.ts";
import { defineCommand } from "../lib/command.ts";
import { CONFIG, JSON_OPTION, PARTNER } from "../lib/options.ts";
import { print } from "../lib/output.ts";
import { planeLabel } from "../lib/progress.ts";
import { openReadmission, ROOMS_OPTION } from "../lib/readmission.ts";

export const command = defineCommand({
  arguments: [PARTNER],
  options: [ROOMS_OPTION, CONFIG.federation, JSON_OPTION],
  help: "\nChanges nothing. Asks the homeserver, and the partner's, about the rooms of plane 2.",
  async run([partner], options) {
    const plan = await planReadmission(await openReadmission(options), partner, options.rooms);
    const indented = () => roomLines(plan.rooms, plan.touched).map((line) => `  ${line}`);
    print(options, plan, () =>
      plan.steps
        .flatMap((step) => [...stepLines(step), ...(step.plane === "rooms" ? indented() : [])])
        .map((line) => `${line}\n`)
        .join(""),
    );
  },
});

function stepLines({ plane, state, interrupts, files }: PlannedStep): readonly string[] {
  return [
    `plane ${planeLabel(plane)}: ${state === "pending" ? interrupts : state}`,
    ...files.flatMap(({ path, removed, added }) => [
      `  ${path}`,
      ...removed.map((line) => `    -${line}`),
      ...added.map((line) => `    +${line}`),
    ]),
  ];
}
