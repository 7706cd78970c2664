// A logger that keeps what is logged, so that a test can look for what must not be there.
import { type Logger, pino } from "pino";

export interface RecordedLog {
  readonly log: Logger;
  /** Everything logged so far, one JSON object a line. */
  text(): string;
}

export function recordedLog(): RecordedLog {
  let text = "";
  const log = pino(
    { level: "debug" },
    {
      write: (line: string) => {
        text += line;
      },
    },
  );
  return { log, text: () => text };
}
