// A log that keeps its lines, for tests that look at what was told.
import { type Logger, pino } from "pino";

export interface LogLines {
  readonly log: Logger;
  readonly lines: readonly Readonly<Record<string, unknown>>[];
  /** The `event` of each line, in order. */
  events(): string[];
}

export function logLines(): LogLines {
  const lines: Record<string, unknown>[] = [];
  const log = pino({ level: "debug", base: null }, { write: (line: string) => lines.push(JSON.parse(line)) });
  return { log, lines, events: () => lines.map((line) => String(line["event"])) };
}
