// Following the gateway's three files: the caller is told of each new content once.
// Invariant: content counts, not the time stamp, so a rename, a symbolic link swap and an edit in place
// are all seen.
import type { Clock } from "../domain/clock.ts";
import { fingerprint, type Reading, read, type SourceName } from "./sources.ts";

/** A revocation waits for it at most. */
const POLL_INTERVAL_MS = 100;

const NAMES: readonly SourceName[] = ["gateway", "publication", "invocation"];

/** What the files hold. */
export type Readings = Readonly<Record<SourceName, Reading>>;

/**
 * Calls `onChange` for each new content of the files until the signal aborts, one call at a time.
 * @param files their paths
 * @param known digests of the contents that are in force already
 */
export async function followFiles(
  files: Readonly<Record<SourceName, string>>,
  known: Readonly<Record<SourceName, string>>,
  onChange: (readings: Readings) => Promise<void>,
  clock: Clock,
  signal: AbortSignal,
): Promise<void> {
  let seen = known;
  while (!signal.aborted) {
    const readings: Readings = {
      gateway: read(files.gateway),
      publication: read(files.publication),
      invocation: read(files.invocation),
    };
    const now = {
      gateway: fingerprint(readings.gateway),
      publication: fingerprint(readings.publication),
      invocation: fingerprint(readings.invocation),
    };
    if (NAMES.some((name) => now[name] !== seen[name])) {
      seen = now;
      await onChange(readings);
    }
    // An abort ends the wait, and so the loop.
    await clock.sleep(POLL_INTERVAL_MS, signal).catch(() => undefined);
  }
}
