// Why senders withhold keys, as they said it to one machine (Matrix client-server API, "m.room_key.withheld"). The library
// would store such codes too, of whatever length and without who sent them.
// Invariants: a code counts for events of its sender alone, because everybody in a room sees the others' session IDs; what
// is kept is bounded, and in memory alone.
import { LRUCache } from "lru-cache";
import { membersOf } from "../../domain/json.ts";
import type { DeviceChanges } from "../matrix/device-changes.ts";

const CODES_MAX = 10_000;
const CODE_LENGTH_MAX = 100;
const ID_LENGTH_MAX = 255;

export const isId = (value: unknown): value is string =>
  typeof value === "string" && value.length <= ID_LENGTH_MAX;

const isWithheld = ({ type }: DeviceChanges["toDevice"][number]) => type === "m.room_key.withheld";
const nameOf = (sender: unknown, room: unknown, session: unknown) => JSON.stringify([sender, room, session]);

export class WithheldCodes {
  readonly #codes = new LRUCache<string, string>({ max: CODES_MAX });

  takeFrom(messages: DeviceChanges["toDevice"]): DeviceChanges["toDevice"] {
    const [withheld, others] = [messages.filter(isWithheld), messages.filter((one) => !isWithheld(one))];
    for (const { sender, content } of withheld) {
      const { room_id, session_id, code } = membersOf(content);
      if (!isId(room_id) || !isId(session_id)) continue;
      if (typeof code !== "string" || code.length > CODE_LENGTH_MAX) continue;
      this.#codes.set(nameOf(sender, room_id, session_id), code);
    }
    return others;
  }

  codeOf(event: { readonly sender: string; readonly room: string }, session: string): string | undefined {
    return this.#codes.get(nameOf(event.sender, event.room, session));
  }
}
