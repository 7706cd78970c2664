// An answer as events in the room. Invariants: the parts are persisted with their transaction IDs before the first is sent;
// the last one's event ID is recorded by the statement that ends the delegation; whoever may have lost the lease sends no
// more; the reply deadline begins when the answer is recorded; a cancellation repeats a part that was begun, and begins no
// other.
import { undefinedFor } from "../../domain/errors.ts";
import type { DelegationOutcome } from "../ledger/delegation-transitions.ts";
import type { PendingSend, ReplyPart } from "../ledger/replies.ts";
import type { SendPurpose } from "../ledger/states.ts";
import { type Answer, type AnswerSource, answerParts, relatesTo } from "../matrix/answer-events.ts";
import type { SendResult } from "../matrix/send-once.ts";
import { missingFile } from "./assemble-answer.ts";
import { canceled, type DelegationVerdict, failed, finish } from "./outcomes.ts";
import type { RunningDelegation } from "./running-delegation.ts";

const FILES_MAX = 10;
/** For all files of an answer: a homeserver that is restarted is back by then. */
const UPLOADS_MS_MAX = 60_000;
/** Whoever has waited so long has probably turned to something else. */
const MENTION_AFTER_MS = 30_000;

export async function recordAndSend(
  running: RunningDelegation,
  found: Answer,
  agentVersion: string | undefined,
  contextId?: string,
): Promise<DelegationVerdict> {
  const { claimed, deps } = running;
  const { sourceEventId: eventId, threadRoot, sender, roomId } = claimed;
  const mentionsAsker = running.now - claimed.admittedAt >= MENTION_AFTER_MS;
  const source = { eventId, threadRoot, sender, texts: deps.textsOf(roomId), mentionsAsker };
  const { text, parts: files } = await passOn(running, found, source);
  const isText = text.trim() !== "" || files.length === 0;
  const parts = [...(isText ? await answerParts({ ...found, text }, source, deps.clock) : []), ...files];
  const sends = await running.persist(() =>
    deps.ledger.recordReply(claimed, { parts, agentVersion, contextId }, running.now),
  );
  if (sends === "canceled") return finish(canceled(running.stage));
  running.host.wake();
  return sendUnsent(running, sends);
}

/** Uploads the files of an answer or a question; the text says so of one that could not be passed on. */
export async function passOn(
  running: RunningDelegation,
  { text, files = [] }: Answer,
  { eventId, threadRoot }: AnswerSource,
): Promise<{ readonly text: string; readonly parts: readonly ReplyPart[] }> {
  const { claimed, deps } = running;
  const parts: ReplyPart[] = [];
  const missing: string[] = [];
  const until = running.now + UPLOADS_MS_MAX;
  for (const [index, file] of files.entries()) {
    const content = index < FILES_MAX ? await deps.upload(claimed, file, running.signal, until) : undefined;
    running.signal.throwIfAborted();
    if (content === undefined) missing.push(missingFile(file));
    else {
      const relation = { "m.relates_to": relatesTo(eventId, threadRoot, true) };
      parts.push({ eventType: "m.room.message", content: { ...content, ...relation } });
    }
  }
  return { text: [text, ...missing].filter((one) => one !== "").join("\n\n"), parts };
}

/**
 * Sends the parts still unsent. @param known the parts just persisted; read from the ledger when absent
 * @param cancellation how it ends instead of with a part whose sending was not begun, or with a failure
 */
export async function sendUnsent(
  running: RunningDelegation,
  known?: readonly PendingSend[],
  cancellation?: DelegationOutcome,
): Promise<DelegationVerdict> {
  running.stage = "reply";
  const { claimed, deps } = running;
  const deadline = (claimed.replyAt ?? running.now) + deps.limits.replyDeadline;
  const sends = known ?? (await readUnsent(running, "reply", deadline));
  const tooLate = finish(cancellation ?? failed("reply", "reply_deadline_exceeded"));
  if (sends === undefined) return tooLate;
  for (const [index, send] of sends.entries()) {
    if (cancellation !== undefined && send.firstAttemptedAt === undefined) return finish(cancellation);
    const result = await running.send(send, index > 0);
    if (result.kind === "retry") {
      if (running.now >= deadline) return tooLate;
      const wakeAt = running.now + Math.max(result.afterMs, running.backoff());
      return { kind: "defer", wakeAt, reason: "reply_retry" };
    }
    if (result.kind === "refused") return finish(cancellation ?? outcomeOfRefusal(result.reason));
    if (index === sends.length - 1) {
      // The whole answer is in the room: a cancellation that came while it was sent came too late.
      if (running.interrupted === "canceled") running.renewSignal();
      return finish({ ...ANSWERED, sent: { sendId: send.sendId, eventId: result.eventId } });
    }
    await running.persist(() => deps.ledger.recordSent(send.sendId, result.eventId));
  }
  // Nothing was left to send: an earlier holder sent the last part and died before it recorded that.
  return finish(ANSWERED);
}

/** The events still unsent; undefined when no content key opens them, and `deadline` has passed. */
export async function readUnsent(running: RunningDelegation, purpose: SendPurpose, deadline: number) {
  const { claimed, deps } = running;
  const unlessLate = (error: unknown) => {
    if (running.now < deadline) throw error;
    return undefinedFor("secret_unavailable")(error);
  };
  return await running.persist(() => deps.ledger.pendingSends(claimed.lease, purpose)).catch(unlessLate);
}

const ANSWERED = { state: "completed", stage: "reply", reason: "answered" } as const;

export function outcomeOfRefusal(reason: Extract<SendResult, { kind: "refused" }>["reason"]) {
  // A notice could not reach that room either.
  return reason === "room_unreachable"
    ? ({ state: "failed", stage: "reply", reason } as const)
    : failed("reply", reason);
}
