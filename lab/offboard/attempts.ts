// What the removed organisation keeps trying all the while: its programs and its people, at every plane.
import type { RoomId } from "../../src/domain/identifiers.ts";
import { loadProbeConfig } from "../../src/federation/probes/config.ts";
import { partnerAttempts } from "../break-glass/attempts.ts";
import { SOURCES } from "../break-glass/scene.ts";
import { type AttemptFinding, type Observed, Watch, type WatchedAttempt } from "../break-glass/watch.ts";
import { roomOf, type Seed } from "../seed/seed.ts";
import type { Operator } from "./operator.ts";

/** A walk takes minutes: what is tried more often loads the machine, and shows no more. */
const TRY_EVERY_MS = 2_000;

/** Nothing of this kind gets through any more. */
export function isShut({ lastPass, lastRefusal }: Observed): boolean {
  return lastRefusal !== null && (lastPass === null || lastRefusal.afterMs > lastPass.afterMs);
}

/** As the counterparty, at the operator's organisation. */
export function tryAll(seed: Seed, { organisation, probeFile }: Operator) {
  const room = roomOf(seed, organisation);
  if (room === undefined) throw new TypeError(`${organisation} has no room`);
  const { attempts, close } = partnerAttempts(
    loadProbeConfig(probeFile),
    room.roomId as RoomId,
    true,
    SOURCES,
  );
  const slowly = attempts.map((one) => ({ ...one, pauseMs: TRY_EVERY_MS, attempt: () => answered(one) }));
  return { watch: new Watch(slowly, SOURCES.clock), close };
}

/** A person who wants to join hears from the own homeserver alone that no server lets it in any more. */
async function answered({ kind, attempt }: WatchedAttempt): Promise<AttemptFinding> {
  const found = await attempt();
  const { verdict, status } = found;
  if (kind !== "join of a person" || verdict !== "unknown" || status === null || status === 429) return found;
  return status < 400
    ? found
    : { ...found, verdict: "closed", reason: found.reason ?? "no_server_lets_it_in" };
}
