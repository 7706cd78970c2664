// What the commands on a re-admission share: the partner's kept rooms, the deployment, and what is printed of where it stands.
import { shellWord } from "../../domain/printable.ts";
import { outsideProbe } from "../../federation/evidence/observe-from-outside.ts";
import { planeLabel } from "../../federation/plane-order.ts";
import { readmissionStatus } from "../../federation/readmission/next-step.ts";
import { currentStep, type Readmission } from "../../federation/readmission/readmission.ts";
import { readmissionRooms, type WorkflowContext } from "../../federation/readmission/rooms.ts";
import { RoomsChoice } from "../../federation/registry/committed-records.ts";
import type { DeploymentOptions } from "./command.ts";
import { print, say, short } from "./command.ts";
import { openForCommand, stepTable } from "./federation.ts";

export const ROOMS_OPTION = [
  "--rooms <choice>",
  "kept rooms: new ones in their place, or opened again (new by default)",
  { choices: RoomsChoice.options },
] as const;

export async function openReadmission(options: DeploymentOptions): Promise<WorkflowContext> {
  const federation = await openForCommand(options.config);
  const outside = outsideProbe(federation, options.probeConfig);
  return { ...federation, say, rooms: readmissionRooms(federation), outside };
}

export function printDone(
  options: DeploymentOptions,
  readmission: Readmission,
  named: string,
  done: object | undefined,
  text: (status: string) => string,
): void {
  const status = readmissionStatus(readmission);
  const { id, partner, approval, openedAt, rooms, steps } = status;
  const step = currentStep(readmission);
  const what = step === undefined ? "records the end" : `opens plane ${planeLabel(step.plane)}`;
  const words = `drawbridge readmission next ${shellWord(named)} --config ${shellWord(options.config)}`;
  const next = readmission.done ? null : `${words}   # ${what}`;
  const title = `Re-admission ${short(id)} of ${partner}, approval ${approval}, since ${openedAt}; rooms: ${rooms ?? "not chosen (new by default)"}\n`;
  print(
    options,
    done === undefined ? { ...status, next } : { ...done, status, next },
    () => `${text(`${title}${stepTable(steps)}`)}${next === null ? "" : `next: ${next}\n`}`,
  );
}
