// The addresses of hosts, looked up so that a name whose servers are slow costs no other one much: the system looks up a few
// names at a time for the whole process, and no lookup can be ended.
// Invariants: of one name one lookup is under way, and whoever asks meanwhile gets its result; it is looked up again no sooner
// than five times as long after that as it took, within a minute; some of the system's lookups are left to what does not share
// them, such as the database.
import { type LookupAddress, type LookupAllOptions, lookup } from "node:dns";
import type { LookupFunction } from "node:net";
import { LRUCache } from "lru-cache";
import { type Clock, systemClock } from "../domain/clock.ts";

export type Resolve = (
  host: string,
  options: LookupAllOptions,
  callback: (error: NodeJS.ErrnoException | null, found: LookupAddress[]) => void,
) => void;

/** Threads of the process for what cannot be waited for otherwise. The system looks up names in half of them. */
export const THREADS = 16;
const AT_ONCE_MAX = THREADS / 2 - 2;
const NAMES_MAX = 1_000;
const REST_FACTOR = 5;
const REST_MS_MAX = 60_000;

export function sharing(resolve: Resolve, clock: Pick<Clock, "now">): Resolve {
  type Result = Parameters<Parameters<Resolve>[2]>;
  interface Asked {
    readonly result: Promise<Result>;
    endedAt: number;
    restMs: number;
  }
  const names = new LRUCache<string, Asked>({ max: NAMES_MAX });
  let underWay = 0;
  const waiting: (() => void)[] = [];
  const begin = (asking: () => void) => {
    if (underWay >= AT_ONCE_MAX) return void waiting.push(asking);
    underWay += 1;
    asking();
  };
  const ended = () => {
    underWay -= 1;
    const next = waiting.shift();
    if (next !== undefined) begin(next);
  };
  // A clock that was set back must not prolong the rest.
  const rests = ({ endedAt, restMs }: Asked) => Math.abs(clock.now() - endedAt) < restMs;
  return (host, options, callback) => {
    const name = JSON.stringify([host, options]);
    let one = names.get(name);
    if (one === undefined || !rests(one)) {
      const { promise: result, resolve: settle } = Promise.withResolvers<Result>();
      const asked = { result, endedAt: clock.now(), restMs: Number.POSITIVE_INFINITY };
      names.set(name, asked);
      begin(() => {
        const begunAt = clock.now();
        resolve(host, options, (...found) => {
          asked.endedAt = clock.now();
          asked.restMs = Math.min(REST_MS_MAX, REST_FACTOR * (asked.endedAt - begunAt));
          settle(found);
          ended();
        });
      });
      one = asked;
    }
    void one.result.then((found) => callback(...found));
  };
}

export const resolveShared = sharing(lookup, systemClock);

/** For connections. @param check the usable ones of the addresses; throws when there is none */
export const lookupBy =
  (resolve: Resolve, check = (found: LookupAddress[]) => found): LookupFunction =>
  (host, options, callback) => {
    resolve(host, { ...options, all: true }, (error, found) => {
      if (error !== null) return callback(error, []);
      try {
        const usable = check(found);
        const [first] = usable;
        if (options.all === true || first === undefined) return callback(null, usable);
        return callback(null, first.address, first.family);
      } catch (refusal) {
        return callback(refusal as NodeJS.ErrnoException, []);
      }
    });
  };
