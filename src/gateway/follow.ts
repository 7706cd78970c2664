// Following a configuration file: the caller is told of each new content once.
// Invariant: content counts, not the time stamp, so a rename, a symbolic link swap and an edit in place
// are all seen; a file that is gone for a moment is waited for.
import { readFileSync } from "node:fs";
import type { Clock } from "../domain/clock.ts";

const POLL_INTERVAL_MS = 250;

function contentOf(file: string): string | undefined {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return undefined;
  }
}

/**
 * Calls `onChange` for each new content of `file` until the signal aborts, one call at a time.
 * @param known the content that is in force already
 */
export async function followFile(
  file: string,
  known: string | undefined,
  onChange: () => Promise<void>,
  clock: Clock,
  signal: AbortSignal,
): Promise<void> {
  let seen = known;
  while (!signal.aborted) {
    const content = contentOf(file);
    if (content !== undefined && content !== seen) {
      seen = content;
      await onChange();
    }
    // An abort ends the wait, and so the loop.
    await clock.sleep(POLL_INTERVAL_MS, signal).catch(() => undefined);
  }
}
