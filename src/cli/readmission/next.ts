// drawbridge readmission next: opens the next plane, and shows that it is open.
import { planeLabel } from "../../federation/plane-order.ts";
import { nextStep } from "../../federation/readmission/next-step.ts";
import { verdictOf } from "../../federation/workflow/run-step.ts";
import { defineCommand, OPTION, PARTNER } from "../lib/command.ts";
import { conditionText } from "../lib/federation.ts";
import { openReadmission, printDone, ROOMS_OPTION } from "../lib/readmission.ts";

type StepResult = Awaited<ReturnType<typeof nextStep>>;

export const nextCommand = defineCommand({
  arguments: [PARTNER],
  options: [ROOMS_OPTION, OPTION.probe, OPTION.federation, OPTION.json],
  help: `
In the order 1 transport, 2 rooms, 3 border, 4 card, 5 gateway: the plane is opened in one commit, brought into
force, and observed until its parts say that the partner is let in. Before plane 2 the rooms it touches are shown
with what becomes of them: new rooms stand for kept ones unless --rooms reopen is given; a room whose memberships
cannot be repaired is replaced either way. A run that was cut off goes on where it stopped.`,
  async run([partner], options) {
    const context = await openReadmission(options);
    const result = await nextStep(context, { partner, rooms: options.rooms });
    const { readmission, ...step } = result;
    printDone(options, readmission, partner, step, (status) => `${status}${resultText(result)}`);
    return result.proved ? "ok" : "incomplete";
  },
});

/** What a step's conditions show that hold: a part that is not managed here was not observed to be open. */
export function openWords(conditions: Parameters<typeof verdictOf>[0]): string {
  const verdict = verdictOf(conditions);
  if (verdict === "unmanaged") return "is not managed here: whoever runs its part has to open it";
  if (verdict === "not_applicable") return "has nothing of this partner's to be open";
  const isPart = conditions.some((one) => one.verdict === "unmanaged");
  return isPart ? "is open as far as it is managed here" : "is open";
}

function resultText({ readmission, plane, conditions, proved, done }: StepResult): string {
  const state = proved ? openWords(conditions) : "is NOT OBSERVED OPEN YET";
  return [
    plane === null ? "" : `\nPlane ${planeLabel(plane)} ${state}\n`,
    conditionText(conditions),
    ...(plane === "rooms" && proved ? invitationLines(readmission) : []),
    done ? "The re-admission is complete. What the partner knew before stays known to it.\n" : "",
  ].join("");
}

function invitationLines({ rooms, touched }: StepResult["readmission"]): readonly string[] {
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
