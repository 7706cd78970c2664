// Recognises a database that was put back from a backup, because what was done since would be done again. The homeserver
// knows how far the database had come.
// Invariants: no work begins before the homeserver has been asked; a database that has come less far than the homeserver
// knows ends the process, and the homeserver's copy stays; what the homeserver is told is durable in the database before.
import type { Logger } from "pino";
import type { Clock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import type { UserId } from "../../domain/identifiers.ts";
import { resultWithin } from "../../runtime/concurrency.ts";
import { WorkLoop } from "../../runtime/work-loop.ts";
import type { createDatabaseMarker, DatabaseMarker } from "../ledger/database-marker.ts";
import type { Homeserver } from "../matrix/homeserver.ts";

export interface RestoreGuardOptions {
  readonly marker: ReturnType<typeof createDatabaseMarker>;
  readonly homeserver: Pick<Homeserver, "databaseMarker" | "setDatabaseMarker">;
  /** The appservice's own user, who keeps the copy. */
  readonly user: UserId;
  readonly isTurn: () => boolean;
  readonly clock: Clock;
  readonly log: Logger;
}

/** What was done within this time before a loss of the database is not known to be missing. */
const EVERY_MS = 60_000;
/** A drain waits no longer for a database or a homeserver that hangs. */
const DRAIN_MS_MAX = 2_000;

export function createRestoreGuard({ marker, homeserver, user, isTurn, clock, log }: RestoreGuardOptions) {
  const wentBack = Promise.withResolvers<never>();
  // Only whoever waits for it is to be told.
  wentBack.promise.catch(() => undefined);
  let observed: DatabaseMarker | undefined;
  let isBack = false;
  const loop = new WorkLoop({ clock, round, onError: () => undefined, pollIntervalMs: EVERY_MS });

  /** Looks at the database; the process whose turn it is also advances the marker, and tells the homeserver. */
  async function round(): Promise<void> {
    if (isBack) return;
    const isReporter = isTurn();
    // The copy is read first: the database is never behind it.
    const known = isReporter ? await homeserver.databaseMarker(user) : undefined;
    const own = await marker.read();
    if (isBehind(own, observed) || (known?.kind === "ok" && isBehind(own, known.value))) {
      log.error({ event: "database_went_back" }, "the database has lost what was committed");
      isBack = true;
      wentBack.reject(putBack());
      return;
    }
    observed = own;
    const advanced = isReporter ? await marker.advance(own) : undefined;
    if (advanced === undefined) return;
    observed = advanced;
    await homeserver.setDatabaseMarker(user, advanced);
  }

  return {
    round,
    start: () => loop.start(),

    /** Rejects when the database goes back while the process runs. */
    wentBack: wentBack.promise,

    /** Tells the homeserver once more, so that a restore to before this moment is recognised. */
    async drain(): Promise<void> {
      await resultWithin(clock, DRAIN_MS_MAX, loop.drain().then(round)).catch(() => undefined);
    },

    /** `onWait` is called once when the homeserver does not answer. @throws DrawbridgeError when the database was put back */
    async check(stop: AbortSignal, onWait: () => void): Promise<void> {
      for (let waits = 0; !stop.aborted; waits++) {
        const known = await homeserver.databaseMarker(user);
        if (known.kind !== "retry") {
          const copy = known.kind === "ok" ? known.value : undefined;
          if (known.kind === "refused")
            log.warn({ errcode: known.errcode }, "no copy of the database's marker");
          const own = await marker.read();
          if (isBehind(own, copy)) {
            isBack = true;
            throw putBack();
          }
          observed = own;
          return;
        }
        if (waits === 0) onWait();
        await clock.sleep(known.afterMs, stop).catch(() => undefined);
      }
    },
  };
}

const isBehind = (own: DatabaseMarker, known: DatabaseMarker | undefined): boolean =>
  known?.database === own.database && own.count < (known?.count ?? 0);

const putBack = () =>
  new DrawbridgeError("database_unavailable", "the database is older than what was done with it", {
    hint: "It was put back from a backup, or a server without all commits took over. Read docs/operating/replicated-database.md, then run `drawbridge bridge accept-restored-database`.",
  });
