// What is asked, and the document that the agent answers from: one section a topic, so that an answer shows which question
// it belongs to. Pure.
import { type AskKind, TOPICS } from "./schedule.ts";

const LETTERS = "bcdfghjklmnpqrstvwxz";

/** A word of letters alone that no other text has; `kind` tells a topic from its answer. */
function wordOf(kind: string, number: number): string {
  const first = LETTERS[Math.floor(number / LETTERS.length)] ?? "";
  return `${kind}${first}${LETTERS[number % LETTERS.length] ?? ""}`;
}

function topicOf(number: number): string {
  return wordOf("qaz", number);
}

/** In each question, so that it is recognised at the agent. */
export function tokenOf(round: number, place: number): string {
  return `r${round}q${place}x`;
}

const TOKEN = /\br\d+q\d+x\b/;

/** The question that a text is about. */
export function tokenIn(text: string): string | undefined {
  return TOKEN.exec(text)?.[0];
}

/** The words of the agent's skills (examples/docs-qa) say what it is to do. */
export function questionAbout(kind: AskKind, token: string, topic: number): string {
  switch (kind) {
    case "conversation":
      return `${token}: let me choose a section about ${topicOf(topic)}`;
    case "cancel":
      return `${token}: survey the documents about ${topicOf(topic)}`;
    default:
      return `${token}: what is known about ${topicOf(topic)}?`;
  }
}

/** What every answer to it says; empty where any answer will do. */
export function answerTo(kind: AskKind, topic: number): string {
  return kind === "conversation" || kind === "cancel" ? "" : wordOf("wsxedc", topic);
}

/** Whether the agent asks back. */
export function isAgentQuestion(text: string): boolean {
  return /^(?:Which section do you want to read\?|Please name one of these\.)/.test(text);
}

export function documentOf(): string {
  const sections = Array.from(
    { length: TOPICS },
    (_, number) =>
      `## ${topicOf(number)}\n\nKnown about ${topicOf(number)}: ${answerTo("question", number)}.\n`,
  );
  return `# Topics\n\n${sections.join("\n")}`;
}
