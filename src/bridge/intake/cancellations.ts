// Which message, reaction or redaction cancels which delegation. Pure. Invariants: by a message or a reaction only the person
// who asked cancels; whoever else tries, or cancels what has ended, gets a notice; a reaction counts on what a ghost says
// about a task alone (on an answer it may be an opinion), unless it chooses an option.
import type { EventId, RoomId } from "../../domain/identifiers.ts";
import type { Admission, NewCancel, NewDelegation, NewNotice, Subject } from "../ledger/admission-types.ts";
import type { CancelRefusal, SendPurpose } from "../ledger/states.ts";
import { sameKey } from "./continued-exchanges.ts";
import { type MessageEvent, ownIn, type ReactionEvent, type ReadableEvent } from "./read-events.ts";

export const CANCEL_COMMAND = "!cancel";
export const CANCEL_REACTION = "❌";

const ABOUT_TASKS: readonly (SendPurpose | undefined)[] = ["question", "progress"];

export type CancelResult =
  | { readonly kind: "cancel"; readonly cancels: readonly NewCancel[] }
  | { readonly kind: "refused"; readonly reason: CancelRefusal; readonly subject: Subject | undefined };

/** @param waiting the delegations whose questions are open */
export function cancelByCommand(
  { room, sender, event, indexDigest, inReplyTo, threadRoot }: MessageEvent,
  subjects: readonly Subject[],
  waiting: ReadonlySet<string>,
): CancelResult {
  const own = (named: EventId | undefined) =>
    subjects.filter((subject) => subject.room === room && subject.event === named);
  const by = { sender, event, indexDigest };
  const isOpen = (one: Subject) => one.sender === sender && one.endedAt === undefined;
  const replied = own(inReplyTo);
  // The root of a thread names later questions in it, too: they are meant where it belongs to no question itself.
  const meant = replied.filter(({ purpose, source }) => purpose || source === inReplyTo);
  if (replied.length > 0) return resultOf(meant.length > 0 ? meant : replied, by);
  const inThread = own(threadRoot);
  const awaiting = inThread.filter((one) => isOpen(one) && waiting.has(one.delegation));
  return resultOf(awaiting.length > 0 ? awaiting : inThread, by);
}

/** The delegations of the question that the command cancels, where the question came in the same transaction and is not recorded yet. */
export function withdrawnBy(
  message: MessageEvent,
  added: readonly NewDelegation[],
  subjects: readonly Subject[],
): readonly NewDelegation[] {
  const { inReplyTo, threadRoot } = message;
  const own = ownIn(message, added).filter(
    ({ event, refused }) => refused === undefined && !subjects.some(({ source }) => source === event),
  );
  const inThread = own.findLast(
    ({ event, threadRoot: root }) => threadRoot !== undefined && [event, root].includes(threadRoot),
  );
  return own.filter(({ event }) => event === (inReplyTo ?? inThread?.event));
}

export function cancelByReaction(
  { room, sender, event, reactsTo, key }: ReactionEvent,
  subjects: readonly Subject[],
): CancelResult | undefined {
  if (!sameKey(key, CANCEL_REACTION)) return undefined;
  const reacted = subjects.filter(
    (subject) => subject.room === room && subject.event === reactsTo && ABOUT_TASKS.includes(subject.purpose),
  );
  return reacted.length === 0 ? undefined : resultOf(reacted, { sender, event });
}

function resultOf(
  subjects: readonly Subject[],
  by: Pick<MessageEvent, "sender" | "event"> & Partial<Pick<MessageEvent, "indexDigest">>,
): CancelResult {
  const own = subjects.filter(({ sender }) => sender === by.sender);
  const open = own.filter(({ endedAt }) => endedAt === undefined);
  if (open.length > 0) {
    const { sender: _sender, ...said } = by;
    const ofLatest = open.filter(({ source }) => source === open.at(-1)?.source);
    return { kind: "cancel", cancels: ofLatest.map(({ delegation }) => ({ delegation, ...said })) };
  }
  const reason =
    subjects.length === 0 ? "nothing_to_cancel" : own.length === 0 ? "not_the_asker" : "already_ended";
  return { kind: "refused", reason, subject: own.at(-1) ?? subjects.at(-1) };
}

/** The notice about a wish that has no effect. @param speaker says it where no ghost is concerned */
export function cancelRefused(
  { reason, subject }: Extract<CancelResult, { kind: "refused" }>,
  by: { readonly room: RoomId; readonly event: EventId; readonly threadRoot?: EventId | undefined },
  speaker: NewNotice["ghost"] | undefined,
): NewNotice[] {
  const ghost = subject?.ghost ?? speaker;
  if (ghost === undefined) return [];
  const threadRoot = subject === undefined ? by.threadRoot : subject.threadRoot;
  return [{ kind: "cancel_refused", room: by.room, ghost, source: by.event, threadRoot, reason }];
}

/** Events that were redacted: a redaction that the homeserver accepts cancels the question, whoever made it. */
export function redactedIn(events: readonly ReadableEvent[]): Admission["redacted"] {
  return events.flatMap((one) => (one.type === "redaction" ? { room: one.room, event: one.redacts } : []));
}
