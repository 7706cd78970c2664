// drawbridge offboarding abort: ends a removal without completing it.
import process from "node:process";
import type { Command } from "commander";
import { counterpartyOf } from "../../federation/offboarding/run/run.ts";
import { abort } from "../../federation/offboarding/workflow/waive-and-abort.ts";
import type { CommandModule } from "../lib/command.ts";
import { CONFIG_OPTION, planeLabel } from "../lib/federation-options.ts";
import { JSON_OPTION, openOffboarding, RUN_ID_OPTION, type RunOptions } from "../lib/offboarding-options.ts";
import { renderJson } from "../lib/output.ts";

export const command: CommandModule = {
  register(program: Command): void {
    program
      .requiredOption("--reason <word>", "why, as a code or a reference")
      .option(...CONFIG_OPTION)
      .option(...RUN_ID_OPTION)
      .option(...JSON_OPTION)
      .addHelpText(
        "after",
        "\nWhat is closed stays closed: it is opened again by a re-admission, or by hand.",
      )
      .action(async (options: RunOptions & { readonly reason: string }) => {
        const { run, closed, contained } = await abort(await openOffboarding(options), {
          run: options.runId,
          reason: options.reason,
        });
        if (options.json === true) {
          process.stdout.write(renderJson({ run: run.run, ended: run.ended, closed, contained }));
          return;
        }
        const planes = closed.map(planeLabel).join(", ");
        const lines = [
          `Run ${run.run} is aborted; it will have no record.`,
          closed.length === 0
            ? "It had closed no plane."
            : `STILL CLOSED for ${counterpartyOf(run)}: planes ${planes}.`,
          ...(contained ? [`${counterpartyOf(run)} is still contained: drawbridge federation restore.`] : []),
        ];
        process.stdout.write(`${lines.join("\n")}\n`);
      });
  },
};
