// drawbridge readmission next: one plane more.
import process from "node:process";
import type { Command } from "commander";
import type { RoomsChoice } from "../../federation/readmission/readmission-record.ts";
import { nextStep, type StepResult } from "../../federation/readmission/workflow.ts";
import { type CommandModule, ExitCode } from "../lib/command.ts";
import { CONFIG_OPTION, planeLabel } from "../lib/federation-options.ts";
import { renderJson, renderTable } from "../lib/output.ts";
import { nextCommand, openWalk, roomsOption, textOf } from "../lib/readmission-options.ts";

interface Options {
  readonly config: string;
  readonly rooms?: RoomsChoice;
  readonly probeConfig?: string;
  readonly json?: boolean;
}

const MARKS = { met: "ok", not_applicable: "-", not_met: "NO", unknown: "?" } as const;

export const command: CommandModule = {
  register(program: Command): void {
    program
      .argument("<partner>", "server name, or name of the registry file")
      .addOption(roomsOption())
      .option("--probe-config <file>", "a probe.yaml: look from outside as well, as the partner")
      .option(...CONFIG_OPTION)
      .option("--json", "print JSON")
      .addHelpText(
        "after",
        `
In the order 1 transport, 2 rooms, 3 border, 4 card, 5 gateway: the plane is opened in one commit, brought into
force, and looked at until its parts say that the partner is let in. Before plane 2 the rooms it touches are shown
with what becomes of them: new rooms stand for kept ones unless --rooms reopen is given; a room whose memberships
cannot be repaired is replaced either way. A run that was cut goes on where it stopped.

Exit codes:
  0  the plane was seen to be open, or there was nothing left to do
  2  unknown partner, or a configuration that is wrong; nothing was done
  4  a guard refused, or the head is refused; nothing was done
  5  something was not seen yet: do what it names, and run the same command again`,
      )
      .action(async (partner: string, options: Options) => {
        const context = await openWalk(options);
        const result = await nextStep(context, { partner, rooms: options.rooms });
        const next = nextCommand(result.readmission, partner, options.config);
        if (options.json === true) process.stdout.write(renderJson({ ...result, next: next ?? null }));
        else process.stdout.write(tell(result, next));
        process.exitCode = result.proved ? ExitCode.ok : ExitCode.incomplete;
      });
  },
};

function tell(
  { readmission, plane, conditions, proved, done }: StepResult,
  next: string | undefined,
): string {
  const { rooms, touched } = readmission;
  const replaced = (touched ?? []).filter(({ replacement }) => replacement !== null);
  const reopened = (touched ?? []).filter(({ state }) => state === "kept");
  const stated =
    plane !== "rooms" || !proved
      ? []
      : [
          ...replaced.map(
            ({ room, replacement }) =>
              `new room ${replacement} in place of ${room}: invite the partner's people\n`,
          ),
          ...(rooms === "reopen"
            ? reopened.map(
                ({ room }) =>
                  `opened again ${room}: invite the partner's people once both borders are open; what its server pulls before stays empty there\n`,
              )
            : []),
        ];
  return [
    textOf(readmission),
    ...(plane === null ? [] : [`\nPlane ${planeLabel(plane)} is ${proved ? "open" : "NOT SEEN OPEN YET"}\n`]),
    ...(conditions.length === 0
      ? []
      : [
          renderTable(
            ["", "condition", "found"],
            conditions.map((one) => [MARKS[one.verdict], one.condition, one.found]),
          ),
        ]),
    ...conditions.filter(({ hint }) => hint !== "").map(({ condition, hint }) => `${condition}: ${hint}\n`),
    ...stated,
    done ? "The re-admission is complete. What the partner knew before stays known to it.\n" : "",
    next === undefined ? "" : `next: ${next}\n`,
  ].join("");
}
