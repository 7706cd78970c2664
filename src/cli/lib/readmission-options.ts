// What the commands of a re-admission share: how they open a deployment, and what they tell.
import { Option } from "commander";
import { systemClock, systemRandom } from "../../domain/clock.ts";
import { observeFromOutside, requireAbout } from "../../federation/evidence/observe-from-outside.ts";
import { PLANE_NUMBERS } from "../../federation/plane-order.ts";
import { loadProbeConfig } from "../../federation/probes/config.ts";
import { currentStage, type Readmission } from "../../federation/readmission/readmission.ts";
import { ROOMS_CHOICES } from "../../federation/readmission/readmission-record.ts";
import { readmissionRooms } from "../../federation/readmission/rooms.ts";
import type { WalkContext } from "../../federation/readmission/workflow.ts";
import { openForCommand, planeLabel, planeWords, say, shellWord, short } from "./federation-options.ts";
import { renderTable } from "./output.ts";

export const roomsOption = () =>
  new Option(
    "--rooms <choice>",
    "kept rooms: new ones in their place, or opened again (new by default)",
  ).choices(ROOMS_CHOICES);

/** @throws DrawbridgeError as opening a deployment does */
export async function openWalk(options: {
  readonly config: string;
  readonly probeConfig?: string | undefined;
}): Promise<WalkContext> {
  const { config, federation } = await openForCommand(options.config);
  const probe = options.probeConfig === undefined ? undefined : loadProbeConfig(options.probeConfig);
  const sources = { clock: systemClock, random: systemRandom };
  const { state } = federation;
  return {
    ...federation,
    config,
    random: systemRandom,
    rooms: readmissionRooms(config, {
      clock: systemClock,
      state,
      note: (text) => say(`  ${planeWords("rooms")}: ${text}`),
    }),
    say,
    onWait: () => say("another change is being made; waiting"),
    ...(probe === undefined
      ? {}
      : {
          outside: async (partner, planes, inside) => {
            requireAbout(probe, probe.target.serverName, partner.partner.serverName);
            return observeFromOutside({ config, probe, sources }, partner, planes, inside);
          },
        }),
  };
}

/** Where it stands, for a person. */
export function textOf(readmission: Readmission): string {
  const { partner, id, gate, openedAt, rooms, stages } = readmission;
  const rows = stages.map(({ plane, revision, provedAt, evidence }) => [
    planeLabel(plane),
    provedAt !== null ? "open" : revision !== null ? "opened, not seen yet" : "closed",
    provedAt ?? "-",
    short(revision),
    String(evidence.length),
  ]);
  return [
    `Re-admission ${short(id)} of ${partner}, gate ${gate}, since ${openedAt}; rooms: ${rooms ?? "not chosen (new by default)"}\n`,
    renderTable(["plane", "state", "seen at", "commit", "evidence"], rows),
  ].join("");
}

/** The command that goes on; undefined at the end. */
export function nextCommand(readmission: Readmission, partner: string, config: string): string | undefined {
  const stage = currentStage(readmission);
  if (readmission.done) return undefined;
  const what =
    stage === undefined ? "records the end" : `opens plane ${PLANE_NUMBERS[stage.plane]}, ${stage.plane}`;
  return `drawbridge readmission next ${shellWord(partner)} --config ${shellWord(config)}   # ${what}`;
}
