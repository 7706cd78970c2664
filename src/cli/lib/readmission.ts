// What the commands of a re-admission share: how they open a deployment, and what they print.
import { systemClock, systemRandom } from "../../domain/clock.ts";
import { shellWord } from "../../domain/printable.ts";
import { planeLabel } from "../../federation/plane-order.ts";
import type { WorkflowContext } from "../../federation/readmission/next-step.ts";
import { currentStage, type Readmission } from "../../federation/readmission/readmission.ts";
import { readmissionRooms } from "../../federation/readmission/rooms.ts";
import { readmissionStatus } from "../../federation/readmission/status.ts";
import { ROOMS_CHOICES } from "../../federation/registry/readmission-record.ts";
import { openForCommand, outsideProbe } from "./federation.ts";
import { say, short } from "./output.ts";
import { planeWords } from "./progress.ts";
import { stepTable } from "./steps.ts";

export const ROOMS_OPTION = [
  "--rooms <choice>",
  "kept rooms: new ones in their place, or opened again (new by default)",
  { choices: ROOMS_CHOICES },
] as const;

/** @throws DrawbridgeError as opening a deployment does */
export async function openReadmission(options: {
  readonly config: string;
  readonly probeConfig?: string | undefined;
}): Promise<WorkflowContext> {
  const { config, federation } = await openForCommand(options.config);
  const { state } = federation;
  return {
    ...federation,
    random: systemRandom,
    rooms: readmissionRooms(config, {
      clock: systemClock,
      state,
      note: (text) => say(`  ${planeWords("rooms")}: ${text}`),
    }),
    say,
    onWait: () => say("another change is being made; waiting"),
    outside: outsideProbe(config, options.probeConfig),
  };
}

/** Where it stands, for a person. */
export function textOf(readmission: Readmission): string {
  const { id, partner, approval, openedAt, rooms, steps } = readmissionStatus(readmission);
  return [
    `Re-admission ${short(id)} of ${partner}, approval ${approval}, since ${openedAt}; rooms: ${rooms ?? "not chosen (new by default)"}\n`,
    stepTable(steps),
  ].join("");
}

/** The command that goes on; undefined at the end. */
export function nextCommand(readmission: Readmission, partner: string, config: string): string | undefined {
  const stage = currentStage(readmission);
  if (readmission.done) return undefined;
  const what = stage === undefined ? "records the end" : `opens plane ${planeLabel(stage.plane)}`;
  return `drawbridge readmission next ${shellWord(partner)} --config ${shellWord(config)}   # ${what}`;
}

/** The line that names the next command; empty at the end. */
export function nextLine(next: string | undefined): string {
  return next === undefined ? "" : `next: ${next}\n`;
}
