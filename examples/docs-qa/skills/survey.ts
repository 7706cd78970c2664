// The skill that takes long: it goes through one document after the other and says which one it reads.
import type { Clock } from "../../../src/domain/clock.ts";
import { ANSWER_MEDIA_TYPE } from "../search/answer.ts";
import type { Section } from "../search/documents.ts";
import { normalizeTerm, questionTerms, tokenize } from "../search/search.ts";
import { type Skill, textPart } from "./skill.ts";

export interface SurveyOptions {
  readonly sections: readonly Section[];
  readonly organisation: string;
  /** Milliseconds that the whole survey takes. */
  readonly durationMs: number;
  readonly clock: Clock;
}

export function surveySkill({ sections, organisation, durationMs, clock }: SurveyOptions): Skill {
  const documents = Map.groupBy(sections, ({ file }) => file);
  return async function* ([question = ""], signal) {
    const terms = new Set(questionTerms(question));
    const lines: string[] = [];
    let read = 0;
    for (const [file, own] of documents) {
      read += 1;
      yield { kind: "progress", text: `Reading document ${read} of ${documents.size}: \`${file}\`` };
      await clock.sleep(durationMs / documents.size, signal);
      const hits = own.filter(({ text }) => tokenize(text).some((token) => terms.has(normalizeTerm(token))));
      const headings = hits.map((section) => section.headings.at(-1) ?? file);
      if (hits.length > 0) lines.push(`- \`${file}\`: ${headings.join(", ")}`);
    }
    const summary = `**${lines.length} of ${documents.size}** documents of ${organisation} mention this.`;
    const text = [summary, ...(lines.length > 0 ? ["", ...lines] : [])].join("\n");
    yield { kind: "artifact", name: "answer", part: textPart(text, ANSWER_MEDIA_TYPE) };
  };
}
