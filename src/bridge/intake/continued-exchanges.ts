// What a message goes on with: an exchange in which nobody paused, or a conversation with an agent. Pure.
// Invariants: only a reply to what the agent's ghost said, or a message in the thread of such a question or answer,
// continues a conversation; only one of the same person, because the agent may tell again what was said in it; only one in
// the same room, with the agent as it was pinned then, and that ended a configured time ago at most.
import type { AgentTarget } from "../agents/loaded-agents.ts";
import type { RecentAnswer, Subject } from "../ledger/admission-types.ts";
import type { MessageEvent } from "./read-events.ts";

/**
 * The number of the answer that this message asks for, counted from 1, in a thread or a chain of replies. A program that marks
 * nothing looks like a person, but for one thing: it reacts to an answer at once, again and again.
 */
export function agentTurnOf(message: MessageEvent, recent: readonly RecentAnswer[]): number {
  const turns = recent.filter((answer) => isReaction(message, answer)).map(({ agentTurn }) => agentTurn);
  return 1 + Math.max(0, ...turns);
}

/** Whether a message goes on in the answer's thread, by the same sender, or replies to the answer. */
function isReaction({ room, sender, threadRoot, inReplyTo }: MessageEvent, answer: RecentAnswer): boolean {
  if (answer.room !== room) return false;
  if (threadRoot !== undefined) {
    // Of several people in a thread each may ask at once.
    return answer.sender === sender && (answer.threadRoot === threadRoot || answer.event === threadRoot);
  }
  if (inReplyTo === undefined) return false;
  // The homeserver's answer may not have come yet, with the event ID that is replied to.
  const isBeingSent = answer.isPending && answer.sender === sender && answer.threadRoot === undefined;
  return isBeingSent || answer.said.includes(inReplyTo);
}

/**
 * The conversation that a message continues.
 * @param since a conversation that ended earlier is over, milliseconds since the Unix epoch
 */
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
