// How often a notice may be said: by its marker, which is claimed once, and by its scope.
// `once`: one notice for the marker, for ever. `interval`: besides, none of its kind by that ghost in that
// room within the configured interval.
import type { EventId, GhostMxid, RoomId } from "../../domain/identifiers.ts";
import type { NoticeKind, TerminalStage } from "./states.ts";

export type NoticeScope = "once" | "interval";

/** What somebody who waits for this very question must be told; all else is said once a room and interval. */
export function noticeScope(kind: NoticeKind, stage: TerminalStage | undefined): NoticeScope {
  switch (kind) {
    case "agent_directory":
    case "encrypted_room_refused":
    case "delegation_failed":
      return "once";
    case "delegation_stopped":
      return stage === "follow" ? "once" : "interval";
    case "policy_denied":
    case "rate_limited":
    case "capacity_exceeded":
      return "interval";
  }
}

export function noticeMarker(
  kind: NoticeKind,
  room: RoomId,
  ghost: GhostMxid,
  source: EventId | undefined,
): string {
  // An encrypted room is refused once, whichever ghost says so and however many events come.
  if (kind === "encrypted_room_refused") return `${kind} ${room}`;
  if (kind === "agent_directory") return `${kind} ${room} ${source ?? ""}`;
  return `${kind} ${room} ${ghost} ${source ?? ""}`;
}
