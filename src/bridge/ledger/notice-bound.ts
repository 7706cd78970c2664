// How often a notice may be said. Its marker is claimed once, for ever. What is bounded by an interval has
// the interval's number in its marker, so that many refusals at one moment claim one and the same; that no
// two follow each other across the edge of an interval is looked at besides (`since`).
import type { EventId, GhostMxid, RoomId } from "../../domain/identifiers.ts";
import type { NoticeKind, TerminalStage } from "./states.ts";

/** Whoever asks for the list of agents again so soon has it on the screen. */
const DIRECTORY_INTERVAL_MS = 10_000;

export interface NoticeBound {
  readonly marker: string;
  /** None of its kind by that ghost in that room may be newer than this, milliseconds since the Unix epoch. */
  readonly since: number | undefined;
}

interface Said {
  readonly kind: NoticeKind;
  readonly room: RoomId;
  readonly ghost: GhostMxid;
  readonly source: EventId | undefined;
}

/** The interval that bounds a notice; undefined for one that somebody waits for, or that is said once at all. */
function intervalMs(
  kind: NoticeKind,
  stage: TerminalStage | undefined,
  configuredMs: number,
): number | undefined {
  switch (kind) {
    case "encrypted_room_refused":
    case "delegation_failed":
      return undefined;
    case "delegation_stopped":
      return stage === "follow" ? undefined : configuredMs;
    case "agent_directory":
      return Math.min(configuredMs, DIRECTORY_INTERVAL_MS);
    case "policy_denied":
    case "rate_limited":
    case "capacity_exceeded":
    case "keys_missing":
      return configuredMs;
  }
}

/** The marker of the one notice that an encrypted room gets, whichever ghost says it. */
export function encryptedRoomMarker(room: RoomId): string {
  return `encrypted_room_refused ${room}`;
}

export function noticeBound(
  said: Said,
  stage: TerminalStage | undefined,
  now: number,
  configuredMs: number,
): NoticeBound {
  const { kind, room, ghost, source } = said;
  if (kind === "encrypted_room_refused") return { marker: encryptedRoomMarker(room), since: undefined };
  const bound = intervalMs(kind, stage, configuredMs);
  if (bound === undefined) return { marker: `${kind} ${room} ${ghost} ${source ?? ""}`, since: undefined };
  // Missing keys are the room's affair, whichever ghost says so.
  const whose = kind === "keys_missing" ? room : `${room} ${ghost}`;
  return { marker: `${kind} ${whose} ${Math.floor(now / bound)}`, since: now - bound };
}
