// drawbridge readmission plan: what is left, and what each step would change.
import process from "node:process";
import type { Command } from "commander";
import { type PlannedStep, planReadmission } from "../../federation/readmission/plan.ts";
import type { RoomsChoice } from "../../federation/readmission/readmission-record.ts";
import { tellRooms } from "../../federation/readmission/rooms.ts";
import type { CommandModule } from "../lib/command.ts";
import { CONFIG_OPTION, planeLabel } from "../lib/federation-options.ts";
import { renderJson } from "../lib/output.ts";
import { openWalk, roomsOption } from "../lib/readmission-options.ts";

interface Options {
  readonly config: string;
  readonly rooms?: RoomsChoice;
  readonly json?: boolean;
}

export const command: CommandModule = {
  register(program: Command): void {
    program
      .argument("<partner>", "server name, or name of the registry file")
      .addOption(roomsOption())
      .option(...CONFIG_OPTION)
      .option("--json", "print JSON")
      .addHelpText(
        "after",
        "\nChanges nothing. Asks the homeserver, and the partner's, about the rooms of plane 2.",
      )
      .action(async (partner: string, options: Options) => {
        const plan = await planReadmission(await openWalk(options), partner, options.rooms);
        if (options.json === true) {
          process.stdout.write(renderJson(plan));
          return;
        }
        for (const step of plan.steps) {
          process.stdout.write(tell(step));
          if (step.plane !== "rooms") continue;
          for (const line of tellRooms(plan.rooms, plan.touched)) process.stdout.write(`  ${line}\n`);
        }
      });
  },
};

function tell({ plane, state, interrupts, files }: PlannedStep): string {
  const lines = [`plane ${planeLabel(plane)}: ${state === "pending" ? interrupts : state}`];
  for (const { path, removed, added } of files) {
    lines.push(`  ${path}`, ...removed.map((line) => `    -${line}`), ...added.map((line) => `    +${line}`));
  }
  return `${lines.join("\n")}\n`;
}
