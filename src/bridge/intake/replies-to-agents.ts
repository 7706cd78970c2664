// Which message answers which question of an agent. Pure.
// Invariants: only the person who asked the agent answers its question; a reply answers the question it replies to, and a
// message in a thread the latest open one there, unless it mentions somebody else's ghost; each
// question is answered once; an answer to a question that has ended asks nothing new.
import type { GhostMxid } from "../../domain/identifiers.ts";
import type { NewAnswer, OpenQuestion, Subject } from "../ledger/admission-types.ts";
import { promptOf } from "./question-text.ts";
import type { MessageEvent } from "./read-events.ts";

/** The answer that a message gives, if it does. @param answered what earlier messages of the transaction gave */
export function answerIn(
  message: MessageEvent,
  open: readonly OpenQuestion[],
  answered: readonly NewAnswer[],
  nameOf: (ghost: GhostMxid) => string | undefined,
): NewAnswer | undefined {
  const { inReplyTo, threadRoot, sender, event, indexDigest, attachment } = message;
  const own = open.filter(
    (question) =>
      question.room === message.room &&
      question.sender === sender &&
      !answered.some(({ delegation }) => delegation === question.delegation),
  );
  const replied = inReplyTo === undefined ? undefined : own.find(({ said }) => said.includes(inReplyTo));
  const inThread =
    threadRoot === undefined
      ? undefined
      : own.findLast(
          (question) =>
            [question.threadRoot, question.source, ...question.said].includes(threadRoot) &&
            message.mentions.every((user) => user === question.ghost || user === sender),
        );
  const question = replied ?? inThread;
  if (question === undefined) return undefined;
  const { delegation, source, ghost, room } = question;
  const text = promptOf(message, ghost, nameOf(ghost));
  const answers = { delegation, source, ghost, room, threadRoot: question.threadRoot };
  return { ...answers, event, indexDigest, text, attachment };
}

/** What a message answers too late: by a reply to the agent's question, or in its thread before the wait ended. */
export function endedQuestion(message: MessageEvent, subjects: readonly Subject[]): Subject | undefined {
  const { inReplyTo, threadRoot, sender, room, originServerTs } = message;
  const own = subjects.filter(
    (subject) =>
      subject.room === room &&
      subject.sender === sender &&
      subject.endedBy !== undefined &&
      subject.endedBy !== "answered",
  );
  return (
    own.findLast(({ event, purpose }) => event === inReplyTo && purpose === "question") ??
    own.findLast(
      ({ event, ghost, endedBy, endedAt = Number.POSITIVE_INFINITY }) =>
        event === threadRoot &&
        endedBy === "input_wait_elapsed" &&
        originServerTs <= endedAt &&
        message.mentions.every((user) => user === ghost || user === sender),
    )
  );
}
