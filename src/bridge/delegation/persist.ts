// A write to the ledger that must not be forgotten because the database was away for a moment: what an
// agent accepted or answered exists nowhere else. Invariants: repeated until it is written, refused by its
// fence, refused as wrong, or the flow is interrupted; every repeated write is fenced, so none can harm.
import { DrawbridgeError } from "../../domain/errors.ts";
import { jitteredBackoffMs } from "./backoff.ts";
import type { DelegationDependencies } from "./dependencies.ts";

/** SQLSTATE classes that no repetition repairs: data, integrity, syntax or access. */
const LASTING = /^(22|23|42)[0-9A-Z]{3}$/;

function isLasting(error: unknown): boolean {
  if (error instanceof DrawbridgeError) return error.code !== "database_unavailable";
  return LASTING.test(String((error as { code?: unknown } | undefined)?.code ?? ""));
}

export async function persist<T>(
  deps: Pick<DelegationDependencies, "clock" | "random">,
  signal: AbortSignal,
  write: () => Promise<T>,
): Promise<T> {
  for (let attempt = 0; ; attempt++) {
    signal.throwIfAborted();
    try {
      return await write();
    } catch (error) {
      if (isLasting(error)) throw error;
      await deps.clock.sleep(jitteredBackoffMs(attempt, deps.random), signal);
    }
  }
}
