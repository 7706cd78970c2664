// drawbridge offboarding abort: ends a removal without completing it.
import { counterpartyIn } from "../../federation/offboarding/run/run-file.ts";
import { abort } from "../../federation/offboarding/steps/waive-and-abort.ts";
import { planeLabel } from "../../federation/plane-order.ts";
import { defineCommand } from "../lib/command.ts";
import { openOffboarding, RUN_OPTIONS } from "../lib/offboarding.ts";
import { print } from "../lib/output.ts";

export const command = defineCommand({
  options: [["--reason <word>", "why, as a code or a reference", { required: true }], ...RUN_OPTIONS],
  help: "\nWhat is closed stays closed: it is opened again by a re-admission, or by hand.",
  async run(_, options) {
    const { run, closed, contained } = await abort(await openOffboarding(options), {
      reason: options.reason,
      run: options.runId,
    });
    const other = counterpartyIn(run);
    const lines = [
      `Run ${run.run} is aborted; it will have no record.`,
      closed.length === 0
        ? "It had closed no plane."
        : `STILL CLOSED for ${other}: planes ${closed.map(planeLabel).join(", ")}.`,
      ...(contained ? [`${other} is still contained: drawbridge federation restore.`] : []),
    ];
    print(options, { run: run.run, ended: run.ended, closed, contained }, () => `${lines.join("\n")}\n`);
  },
});
