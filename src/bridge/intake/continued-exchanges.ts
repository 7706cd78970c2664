// What a message goes on with: an exchange in which nobody paused, or a conversation with an agent. Pure.
// Invariants: only a reply to the agent's ghost, or a message in that thread, continues a conversation, and only one of the
// same person, because the agent may tell again what was said in it, in the same room and with the agent as it was pinned.
import type { AgentTarget } from "../agents/loaded-agents.ts";
import type { RecentAnswer, Subject } from "../ledger/admission-types.ts";
import type { MessageEvent } from "./read-events.ts";

/** Which answer of an exchange this message asks for, from 1: a program reacts at once, again and again. */
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

/** The conversation that a message continues. @param since one that ended earlier is over, epoch milliseconds */
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
