// The skills that answer at once: the quotation as text, or as a file.
import type { Part } from "@a2a-js/sdk";
import { ANSWER_MEDIA_TYPE } from "../search/answer.ts";
import { type Skill, type TextFile, textPart } from "./skill.ts";

/** Answers a question in Markdown: from the files that came with it, where there are any. */
export type Answer = (question: string, files: readonly TextFile[]) => Promise<string>;

const FILE_NAME = "answer.md";

function filePart(text: string): Part {
  return {
    content: { $case: "raw", value: Buffer.from(text) },
    mediaType: ANSWER_MEDIA_TYPE,
    filename: FILE_NAME,
    metadata: undefined,
  };
}

export function answerSkill(answer: Answer): Skill {
  return async function* ([question = ""], _signal, files) {
    yield {
      kind: "artifact",
      name: "answer",
      part: textPart(await answer(question, files), ANSWER_MEDIA_TYPE),
    };
  };
}

export function fileSkill(answer: Answer): Skill {
  return async function* ([question = ""], _signal, files) {
    const text = await answer(question, files);
    yield {
      kind: "artifact",
      name: "summary",
      part: textPart(`The answer is in the file \`${FILE_NAME}\`.`, ANSWER_MEDIA_TYPE),
    };
    yield { kind: "artifact", name: "file", part: filePart(`${text}\n`) };
  };
}
