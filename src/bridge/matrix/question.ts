// A question of an agent as the events that carry it. Invariant: it mentions the person who asked the agent, says how to
// answer, and names each option with its key.
import type { Clock } from "../../domain/clock.ts";
import type { QuestionOption } from "../ledger/admission-types.ts";
import type { ReplyPart } from "../ledger/replies.ts";
import { type Answer, type AnswerSource, answerParts } from "./answer.ts";

const EMPTY_QUESTION = "I need more information to go on.";
const HOW_TO_ANSWER = "Reply to this message to answer.";
const HOW_TO_CHOOSE = "Reply to this message, or react to it with one of these, to answer.";

export function questionParts(
  question: Answer,
  options: readonly QuestionOption[],
  source: AnswerSource,
  clock: Clock,
): Promise<ReplyPart[]> {
  const text = question.text.trim() === "" ? EMPTY_QUESTION : question.text;
  const list = options.map(({ key, value }) => `- ${key} ${value}`);
  const hint = options.length === 0 ? HOW_TO_ANSWER : HOW_TO_CHOOSE;
  const whole = [text, ...(list.length > 0 ? [list.join("\n")] : []), hint].join("\n\n");
  return answerParts({ ...question, text: whole }, source, clock);
}
