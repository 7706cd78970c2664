// A question and its answer, for people. Pure.
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation, partnerOf } from "../organisations.ts";
import { formatDuration, type Palette } from "../progress.ts";
import type { AskResult } from "./ask.ts";
import { timelineOf } from "./timeline.ts";

const WIDTH = 100;

export function renderQuestion(result: AskResult, palette: Palette): string[] {
  return [
    `${palette.bold(result.asker)} asked ${palette.bold(result.ghost)}`,
    `  in ${result.room.alias} ${palette.dim(result.room.roomId)}`,
    ...quote(result.question, palette),
  ];
}

/**
 * The answer in both organisations' copies of the room; the asker's first.
 * @param linesMax of an answer that are shown
 */
export function renderViews(
  result: AskResult,
  from: CompleteOrganisation,
  palette: Palette,
  linesMax = Number.POSITIVE_INFINITY,
): string[] {
  return [from, partnerOf(from)].flatMap((viewer, index) => {
    const { text, eventIds } = result.views[viewer];
    const title = palette.bold(`The answer in ${viewer}'s view of the room`);
    if (text === null) return [title, `  ${palette.red(verdict(result))}`];
    const shown = `${title} ${palette.dim(eventIds.join(" "))}`;
    const isSame = index > 0 && linesMax === Number.POSITIVE_INFINITY && text === result.views[from].text;
    const body = isSame ? ["  the same, word for word"] : quote(text, palette, palette.cyan, linesMax);
    return [...(index > 0 ? [""] : []), shown, ...body];
  });
}

export function renderTimeline(
  result: AskResult,
  bridgeOf: CompleteOrganisation,
  publisher: CompleteOrganisation,
  palette: Palette,
): string[] {
  const hops = timelineOf(result, bridgeOf, publisher);
  return [
    palette.bold("Time line"),
    ...hops.map((hop) => `${formatDuration(Math.max(hop.atMs, 0)).padStart(9)}  ${hop.what}`),
    "",
    `${palette.bold("Gateway")}  ${gatewayLine(result, publisher)}`,
  ];
}

export function gatewayLine({ gateway }: AskResult, publisher: CompleteOrganisation): string {
  if (gateway === null) return `the gateway of ${publisher} has no invocation in its log`;
  const took = formatDuration(gateway.duration_ms);
  return `${publisher}'s gateway saw azp ${gateway.azp} on ${gateway.route}: ${gateway.code} in ${took}`;
}

export function verdict({ audit, views, sentAt }: AskResult): string {
  if (audit.outcome !== "completed") return `${audit.outcome}: ${audit.terminal_reason}`;
  const answers = COMPLETE_ORGANISATIONS.map((name) => views[name].answerArrivedAt ?? Number.NaN);
  const last = Math.max(...answers);
  return Number.isNaN(last)
    ? "answered, but not shown to both"
    : `answered, shown to both after ${formatDuration(last - sentAt)}`;
}

export function quote(
  text: string,
  palette: Palette,
  colour: (text: string) => string = (line) => line,
  linesMax = Number.POSITIVE_INFINITY,
): string[] {
  const lines = text.trimEnd().split("\n").flatMap(wrap);
  const shown = lines.length > linesMax ? lines.slice(0, linesMax - 1) : lines;
  const bar = palette.dim("  │ ");
  return [
    ...shown.map((line) => `${bar}${colour(line)}`),
    ...(shown.length < lines.length
      ? [`${bar}${palette.dim(`… ${lines.length - shown.length} more lines`)}`]
      : []),
  ];
}

function wrap(line: string): string[] {
  const rows: string[] = [];
  let row = "";
  for (const word of line.split(" ")) {
    if (row !== "" && row.length + word.length + 1 > WIDTH) {
      rows.push(row);
      row = line.startsWith("> ") ? `> ${word}` : word;
    } else {
      row = row === "" && rows.length === 0 ? word : `${row} ${word}`;
    }
  }
  return [...rows, row];
}
