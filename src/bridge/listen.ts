// Listening on the configured addresses. Invariant: a port that stays in use is an error with a hint.
import type { Clock } from "../domain/clock.ts";
import { DrawbridgeError } from "../domain/errors.ts";

interface Address {
  readonly host: string;
  readonly port: number;
}

interface Listener {
  listen(address: { host: string; port: number }): Promise<unknown>;
}

interface Patience {
  readonly clock: Clock;
  /** Aborts when there is nothing to wait for any more. */
  readonly ended: AbortSignal;
}

/** A port may stay taken for so long: by a bridge that ends, or by one that tries it as well. */
const TAKEN_MS = 10_000;
const POLL_MS = 250;

/**
 * @param setting the configuration's name for the address
 * @throws DrawbridgeError `program_failed`
 */
export async function listen(server: Listener, address: Address, setting: string): Promise<void> {
  try {
    await server.listen({ ...address });
  } catch (cause) {
    throw new DrawbridgeError("program_failed", `cannot listen on ${address.host}:${address.port}`, {
      hint: `Free that port, or change \`${setting}\` in the configuration.`,
      cause,
    });
  }
}

const isTaken = (error: unknown) =>
  error instanceof DrawbridgeError && (error.cause as { code?: unknown } | undefined)?.code === "EADDRINUSE";

/**
 * Listens as soon as the port is free; false when `ended` aborted before.
 * @throws DrawbridgeError `program_failed` when it is still taken after ten seconds, or cannot be had at all
 */
export async function listenOnceFree(
  server: Listener,
  address: Address,
  setting: string,
  { clock, ended }: Patience,
): Promise<boolean> {
  const deadline = clock.now() + TAKEN_MS;
  while (!ended.aborted) {
    try {
      await listen(server, address, setting);
      return true;
    } catch (error) {
      if (!isTaken(error)) throw error;
      if (clock.now() >= deadline) throw error;
    }
    await clock.sleep(POLL_MS, ended).catch(() => undefined);
  }
  return false;
}
