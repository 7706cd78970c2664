// A logger that keeps what is logged, for tests that examine it, or that look for what must not be there.
import { type Logger, pino } from "pino";

export interface RecordedLog {
  readonly log: Logger;
  readonly lines: readonly Readonly<Record<string, unknown>>[];
  /** The `event` of each line, in order. */
  events(): string[];
  /** Everything logged so far, one JSON object a line. */
  text(): string;
}

export function recordedLog(): RecordedLog {
  const lines: Record<string, unknown>[] = [];
  let text = "";
  const write = (line: string) => {
    text += line;
    lines.push(JSON.parse(line));
  };
  const log = pino({ level: "debug", base: null }, { write });
  return { log, lines, events: () => lines.map((line) => String(line["event"])), text: () => text };
}
