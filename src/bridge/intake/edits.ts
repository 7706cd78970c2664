// Which question a message edits (Matrix client-server API, "Event replacements"). Pure.
// Invariants: only the person who asked edits, in the question's room; the ghosts that a question asks stay the same.
// Whether an agent has the question already is for the ledger to say.
import type { GhostMxid } from "../../domain/identifiers.ts";
import type { NewDelegation, NewEdit, Subject, WaitingQuestion } from "../ledger/admission-types.ts";
import { promptOf } from "./question-text.ts";
import { type MessageEvent, ownIn } from "./read-events.ts";

type Edit = Pick<MessageEvent, "room" | "sender" | "replaces">;

/** The open delegations of the question that an event replaces. */
export function editedBy(edit: Edit, subjects: readonly Subject[]): readonly Subject[] {
  return ownIn(edit, subjects).filter(
    ({ source, event, endedAt }) =>
      source === edit.replaces && event === edit.replaces && endedAt === undefined,
  );
}

export function editsWaiting(edit: Edit, waiting: readonly WaitingQuestion[]): boolean {
  return ownIn(edit, waiting).some(({ event }) => event === edit.replaces);
}

/** The new texts that an edit gives. @param added the delegations of earlier events of the same transaction */
export function editsOf(
  edit: MessageEvent,
  subjects: readonly Subject[],
  added: readonly NewDelegation[],
  nameOf: (ghost: GhostMxid) => string | undefined,
): NewEdit[] {
  const { event, room, sender, replaces, originServerTs, indexDigest, attachment } = edit;
  const by = { event, room, sender, originServerTs, indexDigest, attachment };
  const here = ownIn(edit, added)
    .filter((job) => job.event === replaces)
    .map((job) => ({ delegation: undefined, source: job.event, ghost: job.ghost }));
  return [...editedBy(edit, subjects), ...here].map(({ delegation, source, ghost }) => {
    const prompt = promptOf(edit, ghost, nameOf(ghost));
    return { delegation, source, ghost, prompt, ...by };
  });
}
