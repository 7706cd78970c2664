// The summary of a re-admission, for people. Pure.
import { renderTable } from "../../src/cli/lib/command.ts";
import { PLANE_NAMES, PLANE_NUMBERS } from "../../src/federation/plane-order.ts";
import { renderQuestion, renderViews } from "../ask/render.ts";
import { partnerOf } from "../organisations.ts";
import { formatDuration, type Palette } from "../progress.ts";
import type { Readmitted } from "./readmit.ts";

/** An answer only has to be recognised. */
const ANSWER_LINES_MAX = 6;

export function renderReadmitted(result: Readmitted, palette: Palette): string {
  const { bold, dim, green, red } = palette;
  const { by, partner, gate, completeSince, decidedAt, planes, rooms, choice, reopened, answered, holds } =
    result;
  const rows = planes
    .toSorted((one, other) => one.openAt - other.openAt)
    .map(({ organisation, plane, openAt, tookMs }) => [
      `  ${PLANE_NUMBERS[PLANE_NAMES.find((name) => name === plane) ?? "transport"]} ${plane}`,
      organisation,
      formatDuration(openAt - decidedAt),
      formatDuration(tookMs),
    ]);
  return [
    "",
    bold(
      completeSince === null
        ? `${by} and ${partner} are partners again, with new identities: the old ones stay refused.`
        : `${by} has readmitted ${partner}: complete since ${completeSince}. No plane was left to open.`,
    ),
    dim(`approval ${gate}: the reference of the contract's approval, without which no plane is opened`),
    "",
    ...(rows.length === 0
      ? []
      : [
          bold("The planes, in the order in which they were observed open"),
          renderTable(["  PLANE", "AT", "OPEN AFTER", "TOOK"], rows),
        ]),
    bold("The rooms they share now"),
    ...rooms.map(
      ({ organisation, room, encrypted }) => `  ${organisation}: ${room}${encrypted ? ", encrypted" : ""}`,
    ),
    ...reopened.map(
      ({ organisation, room, createdBy, cameIn, saidByOurs, readable, emptied, isWhole }) =>
        `  ${room}${createdBy === organisation ? " was opened again" : `, which is ${createdBy}'s`}: ` +
        (isWhole ? "" : "at least, because not all messages were read: ") +
        `${cameIn} messages of ${partnerOf(organisation)} arrived; ` +
        `of ${saidByOurs} that ${organisation} sent meanwhile, ${readable} can be read back` +
        (emptied === 0 ? "" : `, and ${emptied} have arrived without content`),
    ),
    ...(choice === "reopen" && reopened.length === 0
      ? ["  None of them was opened again: the removal had replaced them, and a replaced room stays closed."]
      : []),
    "",
    ...answered.flatMap((one, index) => [
      ...renderQuestion(one, palette),
      ...renderViews(one, index === 1 ? by : partner, palette, ANSWER_LINES_MAX),
      "",
    ]),
    holds
      ? green("All questions were answered, the one in the encrypted room encrypted for both.")
      : red("A question was not answered as it should be; see above."),
    "",
  ].join("\n");
}
