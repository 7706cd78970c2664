// How many answers of agents have followed each other in a thread or a chain of replies in which nobody paused. Pure.
// A program that marks nothing looks like a person, but for one thing: it reacts to an answer at once, again and again.
import type { RecentAnswer } from "../ledger/admission-types.ts";
import type { MessageEvent } from "./read-events.ts";

/** The number of the answer that this message asks for, counted from 1. */
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
