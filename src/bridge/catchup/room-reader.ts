// Reads as a ghost what happened in its rooms since its position, up to a bound.
// Invariant: the new position covers exactly the events that were read, except where one room or all rooms together had
// more than the bound: then the newest are read, and those rooms are reported as `cut`.
import type { RoomId } from "../../domain/identifiers.ts";
import { type Outcome, ok } from "../matrix/request-result.ts";
import { type EventsByRoom, type FoundBudget, type FoundEvent, whileMember } from "./found-events.ts";
import type { Reader, SyncApi, SyncChanges } from "./sync-api.ts";

export interface RoomsRead {
  readonly window: EventsByRoom;
  readonly next: string;
  /** Rooms with more events than are read. */
  readonly cut: readonly RoomId[];
}

/** A homeserver may repeat an earlier answer, so it reads until an answer holds nothing new. */
const ANSWERS_MAX = 10;
const PAGES_MAX = 100;

export async function readRooms(
  api: Pick<SyncApi, "changes" | "pageBack">,
  reader: Reader,
  since: string,
  budget: FoundBudget,
): Promise<Outcome<RoomsRead>> {
  const window = new Map<RoomId, readonly FoundEvent[]>();
  const cut: RoomId[] = [];
  let position = since;
  for (let answers = 0; answers < ANSWERS_MAX; answers++) {
    const changes = await api.changes(reader, position);
    if (changes.kind !== "ok") return changes;
    const whole = await completed(api, reader, changes.value, position, budget);
    if (whole.kind !== "ok") return whole;
    position = changes.value.next;
    cut.push(...whole.value.cut);
    if (whole.value.window.size === 0) break;
    for (const [room, events] of whole.value.window)
      window.set(room, [...(window.get(room) ?? []), ...events]);
  }
  return ok({ window, next: position, cut });
}

/** One answer, with the rest of those rooms of which it holds only the end. */
async function completed(
  api: Pick<SyncApi, "pageBack">,
  reader: Reader,
  changes: SyncChanges,
  since: string,
  budget: FoundBudget,
): Promise<Outcome<{ window: EventsByRoom; cut: readonly RoomId[] }>> {
  const { ghost } = reader;
  const window = new Map<RoomId, readonly FoundEvent[]>();
  const cut: RoomId[] = [];
  for (const [room, { events, before }] of changes.rooms) {
    const last = { ghost, room, from: changes.next };
    const end = events.map((event) => budget.found(event, last, changes.isWhole));
    const earlier: FoundEvent[] = [];
    let from = before;
    for (let pages = 0; from !== undefined; pages++) {
      if (pages === PAGES_MAX || budget.isSpent) {
        cut.push(room);
        break;
      }
      const at = { ghost, room, from };
      const page = await api.pageBack(reader, room, from, since);
      // Refused: the ghost may no longer read there. The events of the answer stay.
      if (page.kind === "retry") return page;
      if (page.kind === "refused") break;
      earlier.push(...page.value.events.map((event) => budget.found(event, at, true)));
      from = page.value.next;
    }
    keep(window, room, whileMember([...without(earlier.reverse(), end), ...end], ghost));
  }
  for (const [room, invitation] of changes.invitations) {
    // An invitation is small and cannot be read again, so its content is always held.
    const found = budget.found(invitation, { ghost, room, from: changes.next }, true);
    keep(window, room, [{ ...found, raw: invitation }]);
  }
  return ok({ window, cut });
}

/** Of a room that was left, the page before its end holds that end again. */
function without(events: readonly FoundEvent[], known: readonly FoundEvent[]): FoundEvent[] {
  const ids = new Set(known.map(({ id }) => id));
  return events.filter(({ id }) => !ids.has(id));
}

function keep(window: Map<RoomId, readonly FoundEvent[]>, room: RoomId, events: readonly FoundEvent[]): void {
  if (events.length > 0) window.set(room, events);
}
