// Which question a message edits (Matrix client-server API, "Event replacements"). Pure.
// Invariants: only the person who asked edits, in the question's room; the ghosts that a question asks stay the same.
// Whether an agent has the question already is for the ledger to say.
import type { GhostMxid } from "../../domain/identifiers.ts";
import type { NewDelegation, NewEdit, Subject, WaitingQuestion } from "../ledger/admission-types.ts";
import { promptOf } from "./prompt.ts";
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

/** Whether an event replaces a question that waits for its key. */
export function editsWaiting(
  { room, sender, replaces }: Pick<MessageEvent, "room" | "sender" | "replaces">,
  waiting: readonly WaitingQuestion[],
): boolean {
  return waiting.some((one) => one.event === replaces && one.room === room && one.sender === sender);
}

export function editsOf(edit: MessageEvent, subjects: readonly Subject[], nameOf: NameOf): NewEdit[] {
  const { event, room, sender, indexDigest, attachment } = edit;
  return editedBy(edit, subjects).map(({ delegation, source, ghost }) => {
    const prompt = promptOf(edit, ghost, nameOf(ghost));
    return { delegation, source, ghost, event, room, sender, indexDigest, prompt, attachment };
  });
}

/** Delegations of the same transaction, with the text of an edit that follows their question there. */
export function editedHere(
  edit: MessageEvent,
  delegations: readonly NewDelegation[],
  nameOf: NameOf,
): NewDelegation[] {
  return delegations.map((job) =>
    job.event === edit.replaces && job.room === edit.room && job.sender === edit.sender
      ? { ...job, prompt: promptOf(edit, job.ghost, nameOf(job.ghost)), attachment: edit.attachment }
      : job,
  );
}
