// From events to delegations: who is asked by which message. Pure.
// Invariants: only a person's text message triggers; edits, notices and the bridge's own ghosts never do; a
// message redacted in the same transaction does not; an encrypted room is not served (stage A).
import type { EventId, GhostMxid } from "../../domain/identifiers.ts";
import type { AgentTarget } from "../agents/directory.ts";
import type { Admission, Derived, KnownFacts, NewDelegation, NewNotice } from "../ledger/admission.ts";
import type { RoomStateEvent } from "../ledger/memberships.ts";
import type { Namespace } from "./namespace.ts";
import { promptOf } from "./prompt.ts";
import type { MessageEvent, ReadableEvent } from "./read-events.ts";

/** The command that lists a room's agents. */
export const DIRECTORY_COMMAND = "!agents";

/** The fingerprint of a delegation whose agent was not configured when it was admitted. */
const NO_TARGET = "none";

/** The room state a transaction brings, as the ledger takes it. */
export function roomStateOf(events: readonly ReadableEvent[], namespace: Namespace): RoomStateEvent[] {
  const state: RoomStateEvent[] = [];
  for (const event of events) {
    if (event.type === "encryption") {
      state.push({ kind: "encryption", room: event.room, event: event.event });
    } else if (event.type === "membership") {
      if (namespace.isGhost(event.user)) {
        if (event.membership === "knock") continue;
        state.push({
          kind: "ghost",
          room: event.room,
          ghost: event.user,
          membership: event.membership === "ban" ? "leave" : event.membership,
          inviter: event.membership === "invite" ? event.sender : undefined,
          direct: event.direct,
        });
      } else if (
        !namespace.isOwn(event.user) &&
        event.membership !== "knock" &&
        event.membership !== "invite"
      ) {
        state.push({
          kind: "member",
          room: event.room,
          user: event.user,
          joined: event.membership === "join",
        });
      }
    }
  }
  return state;
}

/** Messages that could ask something: the ledger is consulted about these alone. */
export function candidatesOf(events: readonly ReadableEvent[], namespace: Namespace): MessageEvent[] {
  const redacted = new Set(redactedIn(events));
  const seen = new Set<EventId>();
  return events.filter((event): event is MessageEvent => {
    if (event.type !== "message" || event.msgtype !== "m.text" || event.isEdit) return false;
    if (namespace.isOwn(event.sender) || redacted.has(event.event) || seen.has(event.event)) return false;
    seen.add(event.event);
    return true;
  });
}

export function redactedIn(events: readonly ReadableEvent[]): EventId[] {
  return events.filter((event) => event.type === "redaction").map((event) => event.redacts);
}

/** Rooms and events that the ledger must be asked about before `derive`. */
export function aboutOf(candidates: readonly MessageEvent[]): Admission["about"] {
  const related = new Set<EventId>();
  for (const message of candidates) {
    if (message.inReplyTo !== undefined) related.add(message.inReplyTo);
    if (message.threadRoot !== undefined) related.add(message.threadRoot);
  }
  return {
    rooms: [...new Set(candidates.map((message) => message.room))].sort(),
    events: candidates.map((message) => message.event),
    related: [...related],
  };
}

/** The ghosts a message is addressed to: by mention, in a direct room, by reply, in a thread of theirs. */
function addressedBy(message: MessageEvent, known: KnownFacts, namespace: Namespace): Set<GhostMxid> {
  const ghosts = new Set<GhostMxid>(message.mentions.filter((user) => namespace.isGhost(user)));
  for (const related of [message.inReplyTo, message.threadRoot]) {
    if (related === undefined) continue;
    for (const ghost of known.spokenBy.get(related) ?? []) ghosts.add(ghost);
  }
  const direct = known.directWith.get(message.room);
  if (direct !== undefined) ghosts.add(direct);
  // A ghost that has left cannot answer, and is not to be told what is said without it.
  for (const gone of known.ghostsGone.get(message.room) ?? []) ghosts.delete(gone);
  return ghosts;
}

/** Derives delegations and asked-for notices, in the order of the messages. */
export function derive(
  candidates: readonly MessageEvent[],
  known: KnownFacts,
  targets: ReadonlyMap<GhostMxid, AgentTarget>,
  namespace: Namespace,
): Derived {
  const delegations: NewDelegation[] = [];
  const notices: NewNotice[] = [];
  for (const message of candidates) {
    if (known.encryptedRooms.has(message.room)) continue;
    if (message.body.trim() === DIRECTORY_COMMAND) {
      const speaker = [...(known.ghostsIn.get(message.room) ?? [])].sort()[0];
      if (speaker !== undefined) {
        notices.push({
          kind: "agent_directory",
          room: message.room,
          ghost: speaker,
          source: message.event,
          threadRoot: message.threadRoot,
        });
      }
      continue;
    }
    for (const ghost of [...addressedBy(message, known, namespace)].sort()) {
      const target = targets.get(ghost);
      // A ghost that sits in the room though its agent is gone refuses visibly, rather than stay silent.
      const removed = target === undefined && known.ghostsIn.get(message.room)?.has(ghost);
      const agent = target?.agentId ?? (removed ? namespace.agentOf(ghost) : undefined);
      if (agent === undefined) continue;
      delegations.push({
        event: message.event,
        room: message.room,
        ghost,
        agent,
        targetFingerprint: target?.fingerprint ?? NO_TARGET,
        sender: message.sender,
        originServerTs: message.originServerTs,
        threadRoot: message.threadRoot,
        prompt: promptOf(message.body, ghost, target?.entry.displayName),
      });
    }
  }
  return { delegations, notices };
}
