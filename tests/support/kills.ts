// How often a crash test kills. A short run meets the same boundaries less often.
import process from "node:process";

/** Set to `short` by `./task test:crash-recovery --short`. */
export const CRASH_RUN = "DRAWBRIDGE_TEST_CRASH_RUN";

const SHORT_MAX = 10;

/** @param whole how many kills a whole run makes */
export function killsOf(whole: number): number {
  return process.env[CRASH_RUN] === "short" ? Math.min(whole, SHORT_MAX) : whole;
}
