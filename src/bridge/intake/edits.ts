// Which question a message edits (Matrix client-server API, "Event replacements"). Pure.
// Invariants: only the person who asked edits, in the question's room; the ghosts that a question asks stay the same.
// Whether an agent has the question already is for the ledger to say.
import type { GhostMxid } from "../../domain/identifiers.ts";
import type { NewDelegation, NewEdit, Subject, WaitingQuestion } from "../ledger/admission-types.ts";
import { promptOf } from "./question-text.ts";
import type { MessageEvent } from "./read-events.ts";

type NameOf = (ghost: GhostMxid) => string | undefined;

/** The open delegations of the question that an event replaces. */
export function editedBy(
  { room, sender, replaces }: Pick<MessageEvent, "room" | "sender" | "replaces">,
  subjects: readonly Subject[],
): readonly Subject[] {
  return subjects.filter(
    (subject) =>
      subject.source === replaces &&
      subject.event === replaces &&
      subject.room === room &&
      subject.sender === sender &&
      subject.endedAt === undefined,
  );
}

export function editsWaiting(
  { room, sender, replaces }: Pick<MessageEvent, "room" | "sender" | "replaces">,
  waiting: readonly WaitingQuestion[],
): boolean {
  return waiting.some((one) => one.event === replaces && one.room === room && one.sender === sender);
}

/** The new texts that an edit gives. @param added the delegations of earlier events of the same transaction */
export function editsOf(
  edit: MessageEvent,
  subjects: readonly Subject[],
  added: readonly NewDelegation[],
  nameOf: NameOf,
): NewEdit[] {
  const { event, room, sender, replaces, indexDigest, attachment } = edit;
  const here = added
    .filter((job) => job.event === replaces && job.room === room && job.sender === sender)
    .map((job) => ({ delegation: undefined, source: job.event, ghost: job.ghost }));
  return [...editedBy(edit, subjects), ...here].map(({ delegation, source, ghost }) => {
    const prompt = promptOf(edit, ghost, nameOf(ghost));
    return { delegation, source, ghost, event, room, sender, indexDigest, prompt, attachment };
  });
}
