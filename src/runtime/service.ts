// What every long-running program of the CLI shares: its log on standard output, and the signals that end it.
// Invariants: one JSON object a line, written before the program goes on; no content, only identifiers,
// codes and durations; control characters and marks that reorder or hide text are escaped.
import process from "node:process";
import { type Logger, pino, stdTimeFunctions } from "pino";
import { printableText } from "../domain/printable.ts";

export type LogLevel = "debug" | "info" | "warn" | "error";

export function serviceLog(program: string, options: { level?: LogLevel; file?: string } = {}): Logger {
  return pino(
    {
      level: options.level ?? "info",
      base: { program, pid: process.pid },
      timestamp: stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      // JSON escapes the C0 controls only.
      hooks: { streamWrite: printableText },
    },
    pino.destination({ dest: options.file ?? 1, sync: true, mkdir: true }),
  );
}

/** Aborts at the first SIGTERM or SIGINT. A second one ends the process as the system would. */
export function stopSignal(): AbortSignal {
  const controller = new AbortController();
  for (const name of ["SIGTERM", "SIGINT"] as const) {
    process.once(name, () => controller.abort(new Error(name)));
  }
  return controller.signal;
}
