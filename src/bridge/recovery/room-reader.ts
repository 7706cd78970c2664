// Reads as a ghost what happened in its rooms since its position, up to a bound for each room.
// Invariants: the position given back covers exactly the events given back, but where a room had more than
// the bound: then its newest are read, and how many rooms that was is told.
import type { RoomId } from "../../domain/identifiers.ts";
import type { Outcome } from "../matrix/outcome.ts";
import type { Changes, RawEvent, Reader, SyncApi } from "./sync-api.ts";
import { type Window, whileMember } from "./window.ts";

export interface RoomsRead {
  readonly window: Window;
  readonly next: string;
  /** Rooms with more events than are read. */
  readonly cut: number;
}

/** Answers until nothing new is in one: a homeserver may give an earlier answer to the same question again. */
const ANSWERS_MAX = 10;
/** Pages of a hundred: what a room may have had since the position. */
const PAGES_MAX = 100;

/** What happened since `since`, in the homeserver's order. */
export async function readRooms(
  api: Pick<SyncApi, "changes" | "pageBack">,
  reader: Reader,
  since: string,
): Promise<Outcome<RoomsRead>> {
  const windows: Window[] = [];
  let cut = 0;
  let position = since;
  for (let answers = 0; answers < ANSWERS_MAX; answers++) {
    const changes = await api.changes(reader, position);
    if (changes.kind !== "ok") return changes;
    const whole = await completed(api, reader, changes.value, position);
    if (whole.kind !== "ok") return whole;
    position = changes.value.next;
    cut += whole.value.cut;
    if (whole.value.window.size === 0) break;
    windows.push(whole.value.window);
  }
  return { kind: "ok", value: { window: inSequence(windows), next: position, cut } };
}

/** One answer with the rest of those rooms that it tells only the end of. */
async function completed(
  api: Pick<SyncApi, "pageBack">,
  reader: Reader,
  changes: Changes,
  since: string,
): Promise<Outcome<{ window: Window; cut: number }>> {
  const window = new Map<RoomId, readonly RawEvent[]>();
  let cut = 0;
  for (const [room, { events, before }] of changes.rooms) {
    const earlier: RawEvent[] = [];
    let from = before;
    for (let pages = 0; from !== undefined && pages < PAGES_MAX; pages++) {
      const page = await api.pageBack(reader, room, from, since);
      // Refused: the ghost may no longer read there. What it was told stays.
      if (page.kind === "retry") return page;
      if (page.kind === "refused") break;
      earlier.push(...page.value.events);
      from = page.value.next;
      if (pages === PAGES_MAX - 1 && from !== undefined) cut += 1;
    }
    keep(window, room, whileMember([...without(earlier.reverse(), events), ...events], reader.ghost));
  }
  for (const [room, invitation] of changes.invitations) keep(window, room, [invitation]);
  return { kind: "ok", value: { window, cut } };
}

/** Of a room that was left, the page before its end holds that end again. */
function without(events: readonly RawEvent[], known: readonly RawEvent[]): RawEvent[] {
  const ids = new Set(known.map((event) => event["event_id"]));
  return events.filter((event) => !ids.has(event["event_id"]));
}

function keep(window: Map<RoomId, readonly RawEvent[]>, room: RoomId, events: readonly RawEvent[]): void {
  if (events.length > 0) window.set(room, events);
}

/** Windows of one ghost, one after another in time. */
function inSequence(windows: readonly Window[]): Window {
  const joined = new Map<RoomId, readonly RawEvent[]>();
  for (const window of windows) {
    for (const [room, events] of window) joined.set(room, [...(joined.get(room) ?? []), ...events]);
  }
  return joined;
}
