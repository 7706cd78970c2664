// What a gateway saw of an invocation, from its access log.
import { z } from "zod";
import type { Clock } from "../../src/domain/clock.ts";
import type { DelegationRecord } from "./delegation-record.ts";

export const AccessLogLine = z.object({
  start_time: z.string(),
  azp: z.string().nullable(),
  route: z.string().nullable(),
  code: z.number(),
  details: z.string().nullable(),
  duration_ms: z.number(),
});
export type AccessLogLine = z.output<typeof AccessLogLine>;

const WAIT_MS = 3_000;
const POLL_MS = 25;
/** The two programs round their times on their own. */
const ROUNDING_MS = 2;

/**
 * The caller's first invocation between the question's admission and its end; the log lags a little behind.
 * @param isCaller by `azp`; others try at the same time, and are refused
 */
export async function findInvocation(
  lines: () => string[],
  record: DelegationRecord,
  isCaller: (azp: string) => boolean,
  clock: Clock,
): Promise<AccessLogLine | null> {
  if (!record.a2a_attempted) return null;
  const from = Date.parse(record.admitted_at) - ROUNDING_MS;
  const to = Date.parse(record.time) + ROUNDING_MS;
  const deadline = clock.now() + WAIT_MS;
  for (;;) {
    for (const line of lines()) {
      const parsed = parseLine(line);
      if (parsed?.route?.startsWith("invoke:") !== true) continue;
      if (parsed.azp === null || !isCaller(parsed.azp)) continue;
      const startedAt = Date.parse(parsed.start_time);
      if (startedAt >= from && startedAt <= to) return parsed;
    }
    if (clock.now() > deadline) return null;
    await clock.sleep(POLL_MS);
  }
}

function parseLine(line: string): AccessLogLine | undefined {
  try {
    return AccessLogLine.safeParse(JSON.parse(line)).data;
  } catch {
    return undefined;
  }
}
