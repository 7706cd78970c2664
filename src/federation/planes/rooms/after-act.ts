// A room's state after one act of ours, without reading it again. Pure.
// Invariant: it says what stands there if nobody else has changed the room since it was read; whoever goes by
// it reads the room once more in the end.
import type { EventId, UserId } from "../../../domain/identifiers.ts";
import type { RoomAct } from "./plan.ts";
import type { RoomState } from "./room-state.ts";

/** @param event the event that the act has made */
export function afterAct(state: RoomState, act: RoomAct, actor: UserId, event: EventId): RoomState {
  switch (act.kind) {
    case "ban": {
      const banned = { membership: "ban", sender: actor, eventId: event } as const;
      return { ...state, members: new Map(state.members).set(act.user, banned) };
    }
    case "set_acl": {
      const content = { ...act.content };
      const single = new Map(state.single).set("m.room.server_acl", content);
      return { ...state, single, acl: { content, eventId: event } };
    }
    case "raise_invite":
    case "read_only": {
      const single = new Map(state.single).set("m.room.power_levels", act.content);
      return { ...state, single, power: { ...state.power, content: act.content } };
    }
  }
}
