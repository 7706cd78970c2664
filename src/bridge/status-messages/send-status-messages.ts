// Shows how far delegations are that take long: one message each, edited in place, pinned while the work goes on. Invariants:
// the message is sent once, under one transaction ID, and each try of an edit has one of its own; a status that cannot be
// shown delays no answer, and one room takes its share of the places; nothing of its own stays pinned when a delegation has
// ended, unless the room refuses.
import type { Logger } from "pino";
import { sha256Tagged } from "../../domain/digest.ts";
import { errorName } from "../../domain/errors.ts";
import type { EventId, RoomId } from "../../domain/identifiers.ts";
import type { UnknownObject } from "../../domain/json.ts";
import { backoffMs } from "../../runtime/backoff.ts";
import { KeyedSerial } from "../../runtime/concurrency.ts";
import { WorkQueue } from "../../runtime/work-queue.ts";
import type { Ledger } from "../ledger/ledger.ts";
import { dueNow } from "../ledger/postgres.ts";
import { OPEN_STATES } from "../ledger/states.ts";
import { type ClaimedStatus, UNKNOWN } from "../ledger/status-messages.ts";
import { replyTransactionId } from "../ledger/transaction-ids.ts";
import { relatesTo } from "../matrix/answer-events.ts";
import type { GhostActor } from "../matrix/http.ts";
import { plainLine, renderMarkdown, withHtml } from "../matrix/markdown.ts";
import { mapValue, ok } from "../matrix/request-result.ts";
import { type EncryptEvent, type SenderDependencies, sendOnce, sentAs } from "../matrix/send-once.ts";
import type { Texts } from "../texts/en.ts";
import type { TextsOf } from "../texts/language-of-room.ts";

const BATCH = 16;
const ROOM_SHARE = BATCH / 4;
const LEASE_MS = 60_000;
/** How often a message is looked at, and so the least time between two edits of it. */
const POLL_MS = 3_000;
const BACKOFF = { firstMs: 2_000, maxMs: 60_000 };

export interface StatusDependencies extends SenderDependencies {
  readonly ledger: Pick<Ledger, "statuses">;
  /** Required, because the message shows what the agent says. */
  readonly encryptEvent: EncryptEvent;
  readonly textsOf: TextsOf;
  readonly log: Logger;
  readonly onError: (error: unknown) => void;
}

const PINNED = "m.room.pinned_events";
const OPEN: ReadonlySet<ClaimedStatus["state"]> = new Set(OPEN_STATES);

export function createStatusQueue(deps: StatusDependencies): WorkQueue<ClaimedStatus> {
  const { ledger, clock, ghosts, homeserver } = deps;
  const { statuses } = ledger;
  const pinning = new KeyedSerial<RoomId>();

  async function show(status: ClaimedStatus, signal?: AbortSignal): Promise<void> {
    const { state, eventId } = status;
    const isOpen = OPEN.has(state);
    const wasAttempted = eventId !== undefined || status.firstAttemptedAt !== undefined;
    // The question back, or the answer, is there for people to see already.
    if (!wasAttempted && !isOpen) return await statuses.end(status);
    if (!wasAttempted && (state === "awaiting_input" || state === "reply_pending")) {
      return await statuses.defer(status, clock.now() + POLL_MS, false);
    }
    const text = statusText(status, deps.textsOf(status.roomId));
    const isSaid = text.digest === status.shown;
    if (isSaid && isOpen) return await statuses.defer(status, clock.now() + POLL_MS, false);

    const content = eventId === undefined ? firstContent(text, status) : editContent(text, eventId);
    const sent = isSaid && eventId !== undefined ? sentAs(eventId) : await send(status, content, signal);
    if (sent.kind === "retry") return await again(status, sent.afterMs);
    const message = eventId ?? (sent.kind === "sent" ? sent.eventId : undefined);
    const goesOn = isOpen && sent.kind === "sent";
    const pinned = message !== undefined && (await pin(status, message, goesOn, signal));
    if (message !== undefined && sent.kind === "sent" && !isSaid) {
      // Of a message that was attempted before, the room may have what it said then.
      const digest = eventId === undefined && wasAttempted ? UNKNOWN : text.digest;
      await statuses.recordShown(status, { eventId: message, digest, pinned }, clock.now() + POLL_MS);
      if (digest === UNKNOWN) return;
    }
    if (goesOn) return;
    // The room may refuse the message now and not later. Without its row it would be new work at once.
    if (pinned || isOpen) await again(status, signal?.aborted === true ? 0 : POLL_MS);
    else await statuses.end(status);
  }

  function send(status: ClaimedStatus, content: UnknownObject, signal?: AbortSignal) {
    const { roomId, ghost, sourceEventId, eventId } = status;
    const ordinal = eventId === undefined ? 0 : clock.now();
    const event = {
      ...{ roomId, ghost, content, sourceEventId, eventType: "m.room.message" },
      transactionId: replyTransactionId(sourceEventId, ghost, "progress", ordinal),
      firstAttemptedAt: ordinal === 0 ? status.firstAttemptedAt : undefined,
      recordAttempt: (now: number) => statuses.recordAttempt(status, now),
    };
    return sendOnce(deps, event, signal);
  }

  /** Whether the message may be pinned now, or soon. What the room refuses is not tried again. */
  async function pin(
    { roomId, ghost, eventId, firstAttemptedAt, pinned }: ClaimedStatus,
    message: EventId,
    goesOn: boolean,
    signal?: AbortSignal,
  ): Promise<boolean> {
    const isNew = eventId === undefined;
    // A process that sent it and died may have pinned it too.
    const mayBe = pinned || (isNew && firstAttemptedAt !== undefined);
    if (goesOn ? !isNew : !mayBe) return mayBe;
    // Whoever writes the list between another one's reading and writing it is undone.
    const set = (actor: GhostActor) => pinning.run(roomId, () => setPinned(actor, roomId, message, goesOn));
    const outcome = await ghosts.acting(ghost, set, signal);
    // What was unpinned is looked at once more: another process may have read the list before, and write it after.
    return outcome.kind === "ok" ? goesOn || outcome.value : outcome.kind === "retry";
  }

  /** Whether the list was written. */
  async function setPinned(actor: GhostActor, room: RoomId, eventId: EventId, isPinned: boolean) {
    const read = await homeserver.stateEvent(actor, room, PINNED);
    if (read.kind !== "ok") return read;
    const listed = read.value?.["pinned"];
    const present = Array.isArray(listed) ? listed.filter((one) => typeof one === "string") : [];
    if (present.includes(eventId) === isPinned) return ok(false);
    const pinned = isPinned ? [...present, eventId] : present.filter((one) => one !== eventId);
    return mapValue(await homeserver.setState(actor, room, PINNED, { pinned }), () => true);
  }

  /** Tries again later: an outage, however long, costs a status nothing but time. */
  async function again(status: ClaimedStatus, afterMs: number): Promise<void> {
    const waitMs = afterMs === 0 ? 0 : backoffMs(BACKOFF, status.attempts, afterMs);
    await statuses.defer(status, clock.now() + waitMs, true);
  }

  return new WorkQueue({
    clock,
    concurrency: BATCH,
    claim: (limit, claimed) =>
      statuses.claim({
        ...dueNow(clock, limit, LEASE_MS),
        share: { most: ROOM_SHARE, inProgress: claimed.map(({ roomId }) => roomId) },
      }),
    work: show,
    putOff: (status) => again(status, POLL_MS),
    onError: (error) => {
      deps.log.warn({ err: errorName(error) }, "a status message could not be worked on");
      deps.onError(error);
    },
  });
}

export const REPORT_CHARACTERS_MAX = 400;

type StatusText = ReturnType<typeof statusText>;
type Facts = Pick<ClaimedStatus, "state" | "isBehind" | "retryReason" | "report">;

export function statusText(facts: Facts, { status: words }: Texts) {
  const lines = linesOf(facts, words);
  const body = lines.join("\n");
  return { body, html: lines.map(renderMarkdown).join(""), digest: sha256Tagged(body) };
}

function linesOf({ state, isBehind, retryReason, report }: Facts, words: Texts["status"]): string[] {
  switch (state) {
    case "queued":
    case "dispatching": {
      const isTried = state === "dispatching" && retryReason === undefined;
      if (isTried) return [words.working, words.cancel];
      const why = isBehind ? words.behind : retryReason === "agent_unavailable" ? words.away : words.agent;
      return [`${words.waiting} ${why}`, words.cancel];
    }
    case "following": {
      const said = plainLine(report ?? "", REPORT_CHARACTERS_MAX);
      return [words.working, ...(said === "" ? [] : [`> ${said}`]), words.cancel];
    }
    case "awaiting_input":
      return [words.input, words.cancel];
    case "reply_pending":
      return [words.delivering];
    default:
      return [words[state === "denied" ? "failed" : state]];
  }
}

/** The message stands alone, because Element's banner of pinned messages does not follow edits. Nobody is mentioned. */
export function firstContent(
  text: StatusText,
  { sourceEventId, threadRoot }: Pick<ClaimedStatus, "sourceEventId" | "threadRoot">,
): UnknownObject {
  return { ...saying(text), "m.relates_to": relatesTo(sourceEventId, threadRoot) };
}

/** An edit of it (Matrix client-server API, "Event replacements"). */
export function editContent(text: StatusText, eventId: EventId): UnknownObject {
  return {
    ...saying({ ...text, body: `* ${text.body}` }),
    "m.new_content": saying(text),
    "m.relates_to": { rel_type: "m.replace", event_id: eventId },
  };
}

function saying({ body, html }: StatusText): UnknownObject {
  return { msgtype: "m.notice", ...withHtml(body, html), "m.mentions": {} };
}
