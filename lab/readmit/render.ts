// A re-admission as a person reads it at its end. Pure.
import { renderTable } from "../../src/cli/lib/output.ts";
import { PLANE_NAMES, PLANE_NUMBERS } from "../../src/federation/plane-order.ts";
import { partnerOf } from "../organisations.ts";
import { formatDuration, type Palette } from "../progress.ts";
import { renderQuestion, renderViews } from "../proof/render.ts";
import type { Readmitted } from "./readmit.ts";

/** An answer only has to be recognised. */
const ANSWER_LINES_MAX = 6;

export function renderReadmitted(seen: Readmitted, palette: Palette): string {
  const { bold, dim, green, red } = palette;
  const { by, partner, gate, completeSince, decidedAt, planes, rooms, choice, reopened, answered, holds } =
    seen;
  const rows = planes
    .toSorted((one, other) => one.seenAt - other.seenAt)
    .map(({ organisation, plane, seenAt, tookMs }) => [
      `  ${PLANE_NUMBERS[PLANE_NAMES.find((name) => name === plane) ?? "transport"]} ${plane}`,
      organisation,
      formatDuration(seenAt - decidedAt),
      formatDuration(tookMs),
    ]);
  return [
    "",
    bold(
      completeSince === null
        ? `${by} and ${partner} are partners again, as new ones: what was pinned before is refused for ever.`
        : `${by} has taken ${partner} back: complete since ${completeSince}. Nothing was left to open.`,
    ),
    dim(`gate ${gate}: where the contract's approval is filed; without one nothing is opened`),
    "",
    ...(rows.length === 0
      ? []
      : [
          bold("The planes, in the order in which they were seen to be open"),
          renderTable(["  PLANE", "AT", "SINCE THE DECISION", "TOOK"], rows),
        ]),
    bold("The rooms they share now"),
    ...rooms.map(
      ({ organisation, room, encrypted }) => `  ${organisation}: ${room}${encrypted ? ", encrypted" : ""}`,
    ),
    ...reopened.map(
      ({ organisation, room, createdBy, cameIn, saidByOurs, readBack, emptied, isWhole }) =>
        `  ${room}${createdBy === organisation ? " was opened again" : `, which is ${createdBy}'s`}: ` +
        (isWhole ? "" : "at least, since more was said than is read: ") +
        `${cameIn} messages of ${partnerOf(organisation)} came in; ` +
        `of ${saidByOurs} that ${organisation} said meanwhile, ${readBack} can be read back` +
        (emptied === 0 ? "" : `, and ${emptied} have arrived without content`),
    ),
    ...(choice === "reopen" && reopened.length === 0
      ? ["  None of them was opened again: the removal had replaced them, and that stays so."]
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
