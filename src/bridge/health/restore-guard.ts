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
import type { DatabaseMarker, DatabaseMarkers } from "../ledger/database-marker.ts";
import type { Homeserver } from "../matrix/homeserver.ts";

export interface RestoreGuardOptions {
  readonly marker: DatabaseMarkers;
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

export class RestoreGuard {
  readonly #options: RestoreGuardOptions;
  readonly #loop: WorkLoop;
  readonly #wentBack = Promise.withResolvers<never>();
  #seen: DatabaseMarker | undefined;
  #isBack = false;

  constructor(options: RestoreGuardOptions) {
    this.#options = options;
    // Only whoever waits for it is to be told.
    this.#wentBack.promise.catch(() => undefined);
    this.#loop = new WorkLoop({
      clock: options.clock,
      round: () => this.round(),
      onError: () => undefined,
      pollIntervalMs: EVERY_MS,
    });
  }

  /** Rejects when the database goes back while the process runs. */
  get wentBack(): Promise<never> {
    return this.#wentBack.promise;
  }

  start(): void {
    this.#loop.start();
  }

  /** Tells the homeserver once more, so that a restore to before this moment is recognised. */
  async drain(): Promise<void> {
    const told = this.#loop.drain().then(() => this.round());
    await resultWithin(this.#options.clock, DRAIN_MS_MAX, told).catch(() => undefined);
  }

  /**
   * Resolves when the database is known not to have been put back, or `stop` aborts.
   * @param onWait called once when the homeserver does not answer
   * @throws DrawbridgeError `database_unavailable`
   */
  async check(stop: AbortSignal, onWait: () => void): Promise<void> {
    const { marker, homeserver, user, clock, log } = this.#options;
    for (let waits = 0; !stop.aborted; waits++) {
      const known = await homeserver.databaseMarker(user);
      if (known.kind !== "retry") {
        const copy = known.kind === "ok" ? known.value : undefined;
        if (known.kind === "refused")
          log.warn({ errcode: known.errcode }, "no copy of the database's marker");
        const own = await marker.read();
        if (isBehind(own, copy)) {
          this.#isBack = true;
          throw putBack();
        }
        this.#seen = own;
        return;
      }
      if (waits === 0) onWait();
      await clock.sleep(known.afterMs, stop).catch(() => undefined);
    }
  }

  /** Looks at the database; the process whose turn it is also advances the marker, and tells the homeserver. */
  async round(): Promise<void> {
    const { marker, homeserver, user, isTurn, log } = this.#options;
    if (this.#isBack) return;
    const tells = isTurn();
    // The copy is read first: the database is never behind it.
    const known = tells ? await homeserver.databaseMarker(user) : undefined;
    const own = await marker.read();
    if (isBehind(own, this.#seen) || (known?.kind === "ok" && isBehind(own, known.value))) {
      log.error({ event: "database_went_back" }, "the database has lost what was committed");
      this.#isBack = true;
      this.#wentBack.reject(putBack());
      return;
    }
    this.#seen = own;
    const advanced = tells ? await marker.advance(own) : undefined;
    if (advanced === undefined) return;
    this.#seen = advanced;
    await homeserver.setDatabaseMarker(user, advanced);
  }
}

const isBehind = (own: DatabaseMarker, known: DatabaseMarker | undefined): boolean =>
  known?.database === own.database && own.count < (known?.count ?? 0);

const putBack = () =>
  new DrawbridgeError("database_unavailable", "the database is older than what was done with it", {
    hint: "It was put back from a backup, or a server without all commits took over. Read docs/operating/replicated-database.md, then run `drawbridge bridge accept-restored-database`.",
  });
