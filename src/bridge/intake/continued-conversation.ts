// Which conversation with an agent a message continues. Pure.
// Invariants: only a reply to what the agent's ghost said, or a message in the thread of such a question or answer,
// continues one; only one of the same person, because the agent may tell again what was said in it; only one in the same
// room, with the agent as it was pinned then, and that ended a configured time ago at most.
import type { AgentTarget } from "../agents/loaded-agents.ts";
import type { Subject } from "../ledger/admission-types.ts";
import type { MessageEvent } from "./read-events.ts";

/** @param since a conversation that ended earlier is over, milliseconds since the Unix epoch */
export function contextOf(
  { room, sender, inReplyTo, threadRoot }: MessageEvent,
  { ghost, fingerprint }: AgentTarget,
  subjects: readonly Subject[],
  since: number,
): string | undefined {
  const continued = subjects.filter(
    (subject) =>
      subject.room === room &&
      subject.sender === sender &&
      subject.ghost === ghost &&
      subject.targetFingerprint === fingerprint &&
      subject.contextId !== undefined &&
      (subject.endedAt === undefined || subject.endedAt > since),
  );
  const replied = continued.findLast(({ event, purpose }) => event === inReplyTo && purpose !== undefined);
  return (replied ?? continued.findLast(({ event }) => event === threadRoot))?.contextId;
}
