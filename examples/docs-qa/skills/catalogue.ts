// The skills: how each is described in the card, and the words of a question that select it.
import type { Skill } from "./skill.ts";

export type SkillId = "answer-from-documents" | "survey-documents" | "choose-section" | "answer-as-file";

interface CardSkill {
  readonly id: SkillId;
  readonly name: string;
  readonly description: string;
  readonly tags: readonly string[];
  readonly examples: readonly string[];
}

/** The skills as the card lists them. */
export function cardSkills(organisation: string): CardSkill[] {
  return [
    {
      id: "answer-from-documents",
      name: "Answer from documents",
      description: `Quotes what the documents of ${organisation} say, or a text file that comes with the question, with file and heading.`,
      tags: ["documents", "questions", "search"],
      examples: ["How is a client's secret rotated?"],
    },
    {
      id: "survey-documents",
      name: "Survey all documents",
      description:
        "Goes through every document for a while, reports which one it reads, and lists what it found.",
      tags: ["documents", "long task", "progress"],
      examples: ["Survey the documents about tokens"],
    },
    {
      id: "choose-section",
      name: "Choose a section",
      description: "Asks which of several sections is meant, and quotes the one that is chosen.",
      tags: ["documents", "question back"],
      examples: ["Let me choose a section about tokens"],
    },
    {
      id: "answer-as-file",
      name: "Answer as a file",
      description: "Sends the quotation as a Markdown file.",
      tags: ["documents", "file"],
      examples: ["How is a client's secret rotated? Answer as a file"],
    },
  ];
}

/** What selects a skill. The words are taken out of the question, since they say nothing of its topic. */
const WORDS: readonly (readonly [SkillId, RegExp])[] = [
  ["survey-documents", /\bsurvey(?: (?:all|the))*(?: documents?)?\b/gi],
  ["choose-section", /\blet me choose(?: a)?(?: (?:section|page|document))?\b/gi],
  ["answer-as-file", /\b(?:answer )?as a file\b/gi],
];

/** The skill that a question selects, and what is left of the question. */
export function selectSkill(question: string): { readonly id: SkillId; readonly question: string } {
  for (const [id, words] of WORDS) {
    const rest = question.replace(words, " ");
    if (rest !== question) return { id, question: rest.trim() };
  }
  return { id: "answer-from-documents", question };
}

/** One skill that runs the one of `skills` that the first message selects. */
export function selectingSkill(skills: Readonly<Record<SkillId, Skill>>): Skill {
  return ([first = "", ...replies], signal, files) => {
    const { id, question } = selectSkill(first);
    return skills[id]([question, ...replies], signal, files);
  };
}
