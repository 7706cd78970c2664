// Durations as configuration writes them ("30s", "15m", "24h") and as code uses them (milliseconds).
import * as z from "zod";

const UNITS_MS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const FORM = /^([0-9]{1,9})(ms|s|m|h|d)$/;

/** Milliseconds of a duration such as `250ms`, `30s`, `15m`, `24h` or `7d`; undefined if it is none. */
export function parseDurationMs(text: string): number | undefined {
  const [, count, unit] = FORM.exec(text) ?? [];
  return count === undefined ? undefined : Number(count) * UNITS_MS[unit as keyof typeof UNITS_MS];
}

/** A configuration value: written as a duration, at least `min`, and read as milliseconds. */
export function durationMs(defaultText: string, { min = "0ms" }: { readonly min?: string } = {}) {
  const minMs = parseDurationMs(min);
  if (minMs === undefined) throw new TypeError(`not a duration: ${min}`);
  const written = z
    .string()
    .regex(FORM, { error: "must be a duration such as 250ms, 30s, 15m or 24h", abort: true })
    .refine((text) => (parseDurationMs(text) ?? 0) >= minMs, { error: `must be at least ${min}` });
  // The schema that is published cannot compare durations, so it states the bound in words.
  return (minMs === 0 ? written : written.describe(`At least ${min}.`))
    .default(defaultText)
    .transform((text) => parseDurationMs(text) ?? 0);
}
