// A question of the agent: posted in the room, and waited for while the delegation is released. Its answer: dispatch.ts.
// Invariants: its events are stored with their transaction IDs before the first is sent; the policy is applied anew every half
// minute; the wait, the questions and the options are bounded; no two keys of options count as one.
import * as z from "zod";
import { membersOf, type UnknownObject } from "../../domain/json.ts";
import { sameKey } from "../intake/continued-exchanges.ts";
import type { QuestionOption } from "../ledger/admission-types.ts";
import type { PendingSend } from "../ledger/replies.ts";
import { questionParts } from "../matrix/answer-events.ts";
import { A2aFailure } from "./a2a/classify-failure.ts";
import type { ContentPart, StatusView } from "./a2a/protocol.ts";
import { AnswerAssembly, answerOf } from "./assemble-answer.ts";
import { cancelAndFinish, cancelTask } from "./cancel-task.ts";
import { canceled, type DelegationVerdict, endOfPhase, failed, finish } from "./outcomes.ts";
import { mayBeNew, recheck, stoppedFollowing } from "./recheck-policy.ts";
import { FOLLOW_VERDICTS } from "./retry-or-give-up.ts";
import type { RunningDelegation } from "./running-delegation.ts";
import { outcomeOfRefusal, passOn, readUnsent, recordAndSend } from "./send-reply.ts";

/** How often the policy and the task are looked at while an answer is waited for. */
const POLL_MS = 30_000;
const QUESTION_EVENTS_MAX = 64;

export async function ask(
  running: RunningDelegation,
  { taskId, contextId, statusKey: key, parts: said }: StatusView,
  agentVersion: string | undefined,
): Promise<DelegationVerdict> {
  const { claimed, deps } = running;
  running.taskId = taskId;
  const { options, rest } = optionsOf(said);
  const { sourceEventId: eventId, threadRoot, sender, roomId, asked } = claimed;
  const takesReactions = await running.persist(() => deps.takesReactions(roomId));
  const source = { eventId, threadRoot, sender, texts: deps.textsOf(roomId), takesReactions };
  const content = answerOf(rest, deps.limits.answerBytes);
  const { text, parts: files } = await passOn(running, content, source);
  const parts = [...(await questionParts({ ...content, text }, options, source, deps.clock)), ...files];
  if (asked + parts.length > QUESTION_EVENTS_MAX) {
    return cancelAndFinish(running, taskId, failed(running.stage, "questions_exceeded"));
  }
  const until = running.now + deps.limits.inputWait;
  const question = { parts, options, key, taskId, contextId, agentVersion, asked, until };
  const sends = await running.persist(() => deps.ledger.recordQuestion(claimed, question, running.now));
  if (sends === "canceled") return cancelAndFinish(running, taskId, canceled(running.stage));
  running.stage = "follow";
  running.host.wake();
  return post(running, taskId, sends);
}

export async function awaitInput(running: RunningDelegation): Promise<DelegationVerdict> {
  const { claimed, deps } = running;
  const { a2aTaskId: taskId, inputUntil: until } = claimed;
  // The ledger keeps a task for every delegation in this state.
  if (taskId === undefined) return finish(failed("follow", "outcome_unknown"));
  // The wait was ended, so that no answer can be recorded any more.
  const unanswered = () => cancelAndFinish(running, taskId, failed("follow", "input_wait_elapsed"));
  if (until === undefined) return unanswered();
  const { inputWait, replyDeadline } = deps.limits;
  // Nobody has seen a question that is not posted: it may take as long as an answer may.
  const deadline = until - inputWait + Math.max(inputWait, replyDeadline);
  const sends = await readUnsent(running, "question", deadline);
  if (sends === undefined || sends.length > 0) {
    if (sends !== undefined && running.now < deadline) return post(running, taskId, sends);
    return cancelAndFinish(running, taskId, failed("reply", "reply_deadline_exceeded"));
  }
  // An answer that was sent while the bridge was away has yet to come: then the wait begins anew.
  const end = Math.max(until, running.host.upSince + inputWait);
  if (running.now < end) return poll(running, taskId, end);
  const ended = await running.persist(() => deps.ledger.endWait(claimed.lease, end));
  return ended ? unanswered() : wait(running.now + POLL_MS);
}

async function post(running: RunningDelegation, taskId: string, sends: readonly PendingSend[]) {
  const { claimed, deps } = running;
  for (const [index, send] of sends.entries()) {
    const result = await running.send(send, index > 0);
    if (result.kind === "retry") return wait(running.now + Math.max(result.afterMs, running.backoff()));
    if (result.kind === "refused") return cancelAndFinish(running, taskId, outcomeOfRefusal(result.reason));
    const { now } = running;
    const times = { now, until: now + deps.limits.inputWait };
    await running.persist(() => deps.ledger.recordAsked(claimed.lease, send.sendId, result.eventId, times));
  }
  return wait(running.now + Math.min(POLL_MS, deps.limits.inputWait));
}

/** The agent may end its task without an answer, or lose its trust. */
async function poll(running: RunningDelegation, taskId: string, until: number): Promise<DelegationVerdict> {
  const check = await recheck(running.deps, running.claimed);
  const later = () => wait(Math.min(running.now + POLL_MS, until), check.kind === "cleared");
  if (check.kind === "unknown") return later();
  if (check.kind === "stopped") {
    const isNew = mayBeNew(check, running.claimed);
    return isNew ? wait(running.now + running.backoff()) : finish(stoppedFollowing(check));
  }
  if (running.host.pace.restMs(running.claimed.agentId) > 0) return later();
  try {
    const task = await running.connect(check).getTask(taskId, running.signal);
    const assembly = new AnswerAssembly(running.deps.limits.answerBytes);
    const phase = assembly.take(task, check.card.capabilities.streaming === true);
    if (phase === "completed") return recordAndSend(running, assembly.answer(), check.agentVersion);
    if (phase === "auth_required") await cancelTask(running, taskId);
    const ended = endOfPhase(phase, "follow");
    if (ended !== undefined) return finish(ended);
  } catch (error) {
    if (!(error instanceof A2aFailure)) throw error;
    const verdict = FOLLOW_VERDICTS[error.kind];
    if (verdict.kind === "end" && error.kind !== "protocol") return finish(failed("follow", verdict.reason));
  }
  return later();
}

/** Releases the delegation; an answer makes it due at once. */
function wait(wakeAt: number, hasProgressed = false): DelegationVerdict {
  const note = { followed: { hasProgressed, streamsOpened: 0, faults: 0 } };
  return { kind: "defer", wakeAt, reason: "input_open", note };
}

/** One line that says something. */
const line = (charactersMax: number) =>
  z
    .string()
    .max(charactersMax)
    .regex(/^(?=.*\S)\P{Cc}*$/su);
const withKey = ({ id, ...option }: UnknownObject) => (id === undefined ? option : { key: id, ...option });
const Option = z.preprocess(
  (listed) => (typeof listed === "string" ? { label: listed } : withKey(membersOf(listed))),
  z.object({ label: line(200), key: line(16).optional() }),
);
const Options = z.object({ options: z.array(Option).min(1).max(10) });

/** The keys of options that bring none: keycaps, which people can react with. */
const keycap = (index: number) => (index === 9 ? "🔟" : `${index + 1}\u{fe0f}\u{20e3}`);

/** Takes out a data part with a list `options`, of texts or of objects with `label` and, if it wants, `key` or `id`. */
export function optionsOf(parts: readonly ContentPart[]) {
  for (const [index, part] of parts.entries()) {
    const options = part.kind === "data" ? readOptions(part.json) : undefined;
    if (options !== undefined) return { options, rest: parts.toSpliced(index, 1) };
  }
  return { options: [], rest: parts };
}

function readOptions(json: string): readonly QuestionOption[] | undefined {
  const { data } = Options.safeParse(JSON.parse(json));
  const options = data?.options.map(({ label, key }, index) => {
    // A number of the agent's own is shown as the keycap that people react with.
    const digit = /^[1-9]$/.test(key ?? "") ? Number(key) - 1 : undefined;
    return { key: digit === undefined ? (key ?? keycap(index)).trim() : keycap(digit), value: label.trim() };
  });
  const isUnusable = ({ key }: QuestionOption, index: number) =>
    !sameKey(key, key) || options?.slice(0, index).some((earlier) => sameKey(earlier.key, key));
  return options?.some(isUnusable) ? undefined : options;
}
