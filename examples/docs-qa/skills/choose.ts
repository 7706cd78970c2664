// The skill that asks back: which of several sections is meant. It asks again until the reply names one.
import { ANSWER_MEDIA_TYPE, composeAnswer } from "../search/answer.ts";
import type { Section } from "../search/documents.ts";
import type { DocumentSearch } from "../search/search.ts";
import { chosenOption, type Skill, textPart } from "./skill.ts";

const OPTIONS_MAX = 4;

function titleOf({ file, headings }: Section): string {
  return headings.at(-1) ?? file;
}

/** The sections about the question, or, when they are fewer than two, the first section of each document. */
function candidates(search: DocumentSearch, question: string): Section[] {
  const found = search.find(question).map(({ section }) => section);
  const sections = found.length > 1 ? found : firstOfEach(search.sections);
  const titles = new Map(sections.map((section) => [titleOf(section), section]));
  return [...titles.values()].slice(0, OPTIONS_MAX);
}

function firstOfEach(sections: readonly Section[]): Section[] {
  const files = new Map<string, Section>();
  for (const section of sections) if (!files.has(section.file)) files.set(section.file, section);
  return [...files.values()];
}

export function chooseSkill(search: DocumentSearch, organisation: string): Skill {
  return async function* ([question = "", ...replies]) {
    const sections = candidates(search, question);
    const options = sections.map(titleOf);
    const index = chosenOption(options, replies.at(-1) ?? "");
    const chosen = index === undefined ? undefined : sections[index];
    if (chosen === undefined && sections.length > 0) {
      const text = replies.length === 0 ? "Which section do you want to read?" : "Please name one of these.";
      yield { kind: "ask", text, options };
      return;
    }
    const text = composeAnswer(
      chosen === undefined ? [] : [{ section: chosen, terms: [] }],
      `the documents of ${organisation} do`,
    );
    yield { kind: "artifact", name: "answer", part: textPart(text, ANSWER_MEDIA_TYPE) };
  };
}
