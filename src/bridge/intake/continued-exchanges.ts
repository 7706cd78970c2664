// What a message goes on with: an exchange in which nobody paused, a conversation, or an agent's question. Pure. Invariants:
// only a reply to the agent's ghost, or a message in that thread, goes on, and only one of the same person in the same room
// with the agent as it was pinned; each question is answered once; an answer to a question that has ended asks nothing new.
import type { EventId, GhostMxid } from "../../domain/identifiers.ts";
import { visibleLine } from "../../domain/printable.ts";
import type { AgentTarget } from "../agents/loaded-agents.ts";
import type { NewAnswer, OpenQuestion, RecentAnswer, Subject } from "../ledger/admission-types.ts";
import { promptOf } from "./question-text.ts";
import { type MessageEvent, ownIn, type ReactionEvent } from "./read-events.ts";

/** Which answer of an exchange this message asks for, from 1: a program reacts at once, again and again. */
export function agentTurnOf(message: MessageEvent, recent: readonly RecentAnswer[]): number {
  return 1 + Math.max(0, ...recent.map((answer) => (isReaction(message, answer) ? answer.agentTurn : 0)));
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
  message: MessageEvent,
  target: AgentTarget,
  subjects: readonly Subject[],
  since: number,
): string | undefined {
  const { inReplyTo, threadRoot } = message;
  const continued = ownIn(message, subjects).filter(
    ({ ghost, targetFingerprint, contextId, endedAt = Number.POSITIVE_INFINITY }) =>
      ghost === target.ghost &&
      targetFingerprint === target.fingerprint &&
      contextId !== undefined &&
      endedAt > since,
  );
  const replied = continued.findLast(({ event, purpose }) => event === inReplyTo && purpose !== undefined);
  return (replied ?? continued.findLast(({ event }) => event === threadRoot))?.contextId;
}

/**
 * The answer that a message gives: to the question it replies to, or to the latest open one in its thread, unless it mentions
 * somebody else's ghost. @param answered what earlier messages of the transaction gave. @param isAfter whether it came after
 * a question was posted: what was said in a thread before that answers something else
 */
export function answerIn(
  message: MessageEvent,
  open: readonly OpenQuestion[],
  answered: readonly NewAnswer[],
  nameOf: (ghost: GhostMxid) => string | undefined,
  isAfter: (question: OpenQuestion) => boolean,
): NewAnswer | undefined {
  const { inReplyTo, threadRoot } = message;
  const own = answerable(message, open, answered);
  const isIn = (events: readonly unknown[], event: EventId | undefined) =>
    event !== undefined && events.includes(event);
  if (own.some(({ earlier }) => isIn(earlier, inReplyTo))) return undefined;
  const question =
    own.find(({ said }) => isIn(said, inReplyTo)) ??
    own.findLast(
      (one) =>
        isIn([one.threadRoot, one.source, ...one.said, ...one.earlier], threadRoot) &&
        mentionsNobodyBut(one.ghost, message) &&
        isAfter(one),
    );
  if (question === undefined) return undefined;
  const text = promptOf(message, question.ghost, nameOf(question.ghost));
  const said = chosen(question.options, text) ?? text;
  return { ...answerTo(question, message, said), attachment: message.attachment };
}

const mentionsNobodyBut = (ghost: GhostMxid, { mentions, sender }: MessageEvent) =>
  mentions.every((user) => user === ghost || user === sender);

function answerTo(question: OpenQuestion, by: MessageEvent | ReactionEvent, text: string): NewAnswer {
  const { delegation, source, ghost, room, threadRoot } = question;
  const indexDigest = by.type === "message" ? by.indexDigest : undefined;
  return { delegation, source, ghost, room, threadRoot, event: by.event, indexDigest, text };
}

/** What a message answers too late: by a reply to the agent's question, or in its thread before the wait ended. */
export function endedQuestion(message: MessageEvent, subjects: readonly Subject[]): Subject | undefined {
  const { inReplyTo, threadRoot, originServerTs } = message;
  const own = ownIn(message, subjects).filter(({ endedBy = "answered" }) => endedBy !== "answered");
  return (
    own.findLast(({ event, purpose }) => event === inReplyTo && purpose === "question") ??
    own.findLast(
      ({ event, ghost, endedBy, endedAt = Number.POSITIVE_INFINITY }) =>
        event === threadRoot &&
        endedBy === "input_wait_elapsed" &&
        originServerTs <= endedAt &&
        mentionsNobodyBut(ghost, message),
    )
  );
}

/** The answer that a reaction gives; undefined when its key chooses no option of an open question. */
export function answerByReaction(
  reaction: ReactionEvent,
  open: readonly OpenQuestion[],
  answered: readonly NewAnswer[],
): NewAnswer | undefined {
  const question = answerable(reaction, open, answered).find(({ said }) => said.includes(reaction.reactsTo));
  const text = question && chosen(question.options, reaction.key);
  return question === undefined || text === undefined ? undefined : answerTo(question, reaction, text);
}

/** The questions in the room of an event that its sender may answer. */
function answerable(
  event: MessageEvent | ReactionEvent,
  open: readonly OpenQuestion[],
  answered: readonly NewAnswer[],
): readonly OpenQuestion[] {
  const isAnswered = new Set(answered.map(({ delegation }) => delegation));
  return ownIn(event, open).filter(({ delegation }) => !isAnswered.has(delegation));
}

const chosen = (options: OpenQuestion["options"], text: string) =>
  options.find(({ key }) => sameKey(key, text))?.value;

const LENGTH_MAX = 64;
const EMOJI_MARKS = /[\u{fe0f}\u{20e3}]/gu;
const plain = (key: string) => key.replace(EMOJI_MARKS, "").trim().toLowerCase();

/** Whether people see two reactions as one: "1" stands for the keycap 1. Nothing visible, or a long text, is no key. */
export function sameKey(left: string, right: string): boolean {
  if (left.length > LENGTH_MAX || right.length > LENGTH_MAX) return false;
  return visibleLine(plain(left)) !== "" && plain(left) === plain(right);
}
