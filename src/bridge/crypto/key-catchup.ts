// The catchup of one ghost's to-device messages: reads what the homeserver's transactions may have lost.
// Invariants: no room event is read this way; the position moves only after what lies before it is durable; one catchup
// runs at a time, and whoever calls while one runs gets the next one, because a message may have come after it began.
import type { Clock } from "../../domain/clock.ts";
import type { RoomId } from "../../domain/identifiers.ts";
import { Serial } from "../../runtime/concurrency.ts";
import type { ReadPositions } from "../ledger/ghosts.ts";
import type { DeviceChanges } from "../matrix/device-changes.ts";
import type { GhostActor } from "../matrix/http.ts";
import { type Outcome, ok, type Refused, retry } from "../matrix/request-result.ts";
import type { DeviceRequestsDependencies } from "./device-requests.ts";

/** What is left after so many is read by the next catchup. */
const PAGES_MAX = 50;
const EVERY_MS = 5 * 60_000;
const AGAIN_AFTER_FAILURE_MS = 30_000;

export interface KeyCatchupObserver {
  toDevice(count: number, by: "transaction" | "catchup"): void;
  toDeviceSkipped(count: number): void;
  keyCatchupEnded(outcome: Outcome<unknown>["kind"]): void;
}

export interface KeyCatchupDependencies extends Pick<DeviceRequestsDependencies, "ghost" | "api" | "log"> {
  readonly positions: ReadPositions;
  readonly clock: Clock;
  readonly observe: KeyCatchupObserver;
  readonly onNewKeys: (rooms: readonly RoomId[]) => void;
  readonly ensure: () => Promise<Outcome<GhostActor>>;
  /** Takes in what was read; rejects when it could not be made durable. */
  readonly take: (changes: DeviceChanges) => Promise<readonly RoomId[]>;
  readonly onRefused: (outcome: Refused) => Promise<void>;
}

export function createKeyCatchup(deps: KeyCatchupDependencies) {
  const { ghost, api, positions, clock, log, observe, onNewKeys, ensure, take, onRefused } = deps;
  const serial = new Serial();
  let running: Promise<Outcome<readonly RoomId[]>> | undefined;
  let isFailing = false;
  let dueAt = Number.POSITIVE_INFINITY;

  function soon(): void {
    dueAt = 0;
  }

  /** Returns the rooms for which keys came. @param signal ends the requests; of several callers the first one's counts */
  function run(signal?: AbortSignal): Promise<Outcome<readonly RoomId[]>> {
    running ??= serial.run(async () => {
      running = undefined;
      dueAt = Number.POSITIVE_INFINITY;
      const outcome = await readAll(signal).catch(() => retry("device_unavailable"));
      const isStopped = outcome.kind === "retry" && outcome.cause === "stopped";
      if (!isStopped) isFailing = outcome.kind !== "ok";
      const waitMs = outcome.kind === "ok" ? EVERY_MS : AGAIN_AFTER_FAILURE_MS;
      dueAt = Math.min(dueAt, clock.now() + waitMs);
      observe.keyCatchupEnded(outcome.kind);
      return outcome;
    });
    return running;
  }

  async function readAll(signal?: AbortSignal): Promise<Outcome<readonly RoomId[]>> {
    const ensured = await ensure();
    if (ensured.kind !== "ok") return ensured;
    const actor = { ...ensured.value, signal };
    const rooms = new Set<RoomId>();
    let messages = 0;
    let isRead = false;
    let since = await positions.get(ghost);
    for (let page = 0; page < PAGES_MAX && !isRead; page++) {
      const read = await api.toDeviceSince(actor, since);
      if (read.kind === "refused") await onRefused(read);
      if (read.kind !== "ok") return read;
      const { changes, next, skipped, isFull } = read.value;
      for (const room of await take(changes)) rooms.add(room);
      if (skipped > 0) {
        observe.toDeviceSkipped(skipped);
        const text = "to-device messages were too large or nested too deep, and were skipped";
        log.warn({ ghost, messages: skipped }, text);
      }
      if (next !== since) await positions.set(ghost, next, since);
      since = next;
      messages += changes.toDevice.length;
      isRead = !isFull;
    }
    if (!isRead) soon();
    observe.toDevice(messages, "catchup");
    if (rooms.size > 0) onNewKeys([...rooms]);
    return ok([...rooms]);
  }

  return {
    ...{ soon, run, ended: () => serial.ended() },
    get isFailing() {
      return isFailing;
    },
    get isDue() {
      return clock.now() >= dueAt;
    },
  };
}
