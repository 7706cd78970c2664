// drawbridge offboarding abort: ends a removal without a record, and says what stays closed.
import { trustOf } from "../../federation/offboarding/run/context.ts";
import { counterpartyIn } from "../../federation/offboarding/run/run-file.ts";
import { statusOf } from "../../federation/offboarding/steps/status.ts";
import { abort } from "../../federation/offboarding/steps/waive-or-abort.ts";
import { planeLabel } from "../../federation/plane-order.ts";
import { defineCommand, print, required } from "../lib/command.ts";
import { openOffboarding, RUN_OPTIONS } from "../lib/offboarding.ts";

export const abortCommand = defineCommand({
  options: [required("--reason <word>", "why, as a code or a reference"), ...RUN_OPTIONS],
  help: "\nWhat is closed stays closed: it is opened again by a re-admission, or by hand.",
  async run(_, options) {
    const how = { reason: options.reason, run: options.runId };
    const context = await openOffboarding(options);
    const { run, closed, contained } = await abort(context, how);
    const other = counterpartyIn(run);
    const isCompleted = statusOf(run, trustOf(context.config)).completion.state !== "none";
    const record = isCompleted ? `${other} can make the record, by its signature` : "it will have no record";
    const lines = [
      `Run ${run.run} is aborted; ${record}.`,
      closed === null
        ? `What is still closed for ${other} is not known: drawbridge federation status says why.`
        : closed.length === 0
          ? `No plane is closed for ${other}.`
          : `STILL CLOSED for ${other}: plane${closed.length === 1 ? "" : "s"} ${closed.map(planeLabel).join(", ")}.`,
      ...(contained ? [`${other} is still contained: drawbridge federation restore.`] : []),
    ];
    print(options, { run: run.run, ended: run.ended, closed, contained }, () => `${lines.join("\n")}\n`);
  },
});
