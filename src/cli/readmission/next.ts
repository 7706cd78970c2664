// drawbridge readmission next: opens the next plane.

import { planeLabel } from "../../federation/plane-order.ts";
import { nextStep, type ReadmissionStepResult } from "../../federation/readmission/next-step.ts";
import { readmissionStatus } from "../../federation/readmission/status.ts";
import { defineCommand } from "../lib/command.ts";
import { ExitCode } from "../lib/exit-codes.ts";
import { CONFIG, JSON_OPTION, PARTNER, PROBE_CONFIG } from "../lib/options.ts";
import { print } from "../lib/output.ts";
import { nextCommand, nextLine, openReadmission, ROOMS_OPTION, textOf } from "../lib/readmission.ts";
import { conditionText } from "../lib/steps.ts";

export const command = defineCommand({
  arguments: [PARTNER],
  options: [ROOMS_OPTION, PROBE_CONFIG, CONFIG.federation, JSON_OPTION],
  help: `
In the order 1 transport, 2 rooms, 3 border, 4 card, 5 gateway: the plane is opened in one commit, brought into
force, and observed until its parts say that the partner is let in. Before plane 2 the rooms it touches are shown
with what becomes of them: new rooms stand for kept ones unless --rooms reopen is given; a room whose memberships
cannot be repaired is replaced either way. A run that was cut off goes on where it stopped.

Exit codes:
  0  the plane was observed to be open, or there was nothing left to do
  2  unknown partner, or a configuration that is wrong; nothing was done
  4  a guard refused, or the head is refused; nothing was done
  5  something was not observed yet: do what it names, and run the same command again`,
  async run([partner], options) {
    const context = await openReadmission(options);
    const result = await nextStep(context, { partner, rooms: options.rooms });
    const next = nextCommand(result.readmission, partner, options.config);
    const { readmission, ...step } = result;
    const value = { ...step, status: readmissionStatus(readmission), next: next ?? null };
    print(options, value, () => `${resultText(result)}${nextLine(next)}`);
    return result.proved ? ExitCode.ok : ExitCode.incomplete;
  },
});

function resultText({ readmission, plane, conditions, proved, done }: ReadmissionStepResult): string {
  return [
    textOf(readmission),
    ...(plane === null
      ? []
      : [`\nPlane ${planeLabel(plane)} is ${proved ? "open" : "NOT OBSERVED OPEN YET"}\n`]),
    conditionText(conditions),
    ...(plane === "rooms" && proved ? roomLines(readmission) : []),
    done ? "The re-admission is complete. What the partner knew before stays known to it.\n" : "",
  ].join("");
}

/** Each room to which the partner's people are invited next. */
function roomLines({ rooms, touched }: ReadmissionStepResult["readmission"]): readonly string[] {
  const replaced = (touched ?? []).filter(({ replacement }) => replacement !== null);
  const reopened = (touched ?? []).filter(({ state }) => rooms === "reopen" && state === "kept");
  return [
    ...replaced.map(
      ({ room, replacement }) => `new room ${replacement} in place of ${room}: invite the partner's people\n`,
    ),
    ...reopened.map(
      ({ room }) =>
        `opened again ${room}: invite the partner's people once both borders are open; what its server pulls before stays empty there\n`,
    ),
  ];
}
