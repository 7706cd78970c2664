// A question of an agent as the events that carry it. Invariant: it mentions the person who asked the agent, says how to
// answer, and names each option with its key.
import type { Clock } from "../../domain/clock.ts";
import type { QuestionOption } from "../ledger/admission-types.ts";
import type { ReplyPart } from "../ledger/replies.ts";
import { CATALOGUES } from "../texts/language-of-room.ts";
import { type Answer, type AnswerSource, answerParts, isPlain } from "./answer-events.ts";

export function questionParts(
  question: Answer,
  options: readonly QuestionOption[],
  source: AnswerSource,
  clock: Clock,
): Promise<ReplyPart[]> {
  const { empty, howToAnswer, howToChoose } = (source.texts ?? CATALOGUES.en).question;
  const text = question.text.trim() === "" ? empty : question.text;
  const bullet = isPlain(question) ? "" : "- ";
  const list = options.map(({ key, value }) => `${bullet}${key} ${value}`);
  const hint = options.length === 0 ? howToAnswer : howToChoose;
  const whole = [text, ...(list.length > 0 ? [list.join("\n")] : []), hint].join("\n\n");
  return answerParts({ ...question, text: whole }, source, clock);
}
