// Finding the sections that answer a question (BM25+ by MiniSearch), and admitting that none does.
// Invariant: a section counts as an answer only when it holds most of what was asked for; a high score
// by one common word is no answer.
import MiniSearch, { type SearchResult } from "minisearch";
import type { Section } from "./sections.ts";
import { searchTerm, tokenize } from "./terms.ts";

export interface Found {
  readonly section: Section;
  /** The terms of the question that the section holds. */
  readonly terms: readonly string[];
}

interface Entry {
  readonly id: number;
  readonly title: string;
  readonly path: string;
  readonly text: string;
}

const RESULTS_MAX = 3;
const QUESTION_CHARACTERS_MAX = 2_000;
const TERMS_MAX = 48;
/** The share of the question's terms a section must hold; less is enough when one is in its heading. */
const COVERAGE_MIN = 0.6;
const COVERAGE_MIN_IN_HEADING = 0.5;
/** Further sections are quoted only when they are about as good as the first. */
const SCORE_SHARE_MIN = 0.5;

export class DocumentSearch {
  readonly #sections: readonly Section[];
  readonly #index: MiniSearch<Entry>;

  constructor(sections: readonly Section[]) {
    this.#sections = sections;
    this.#index = new MiniSearch<Entry>({
      fields: ["title", "path", "text"],
      tokenize,
      processTerm: (token) => searchTerm(token) ?? null,
      searchOptions: { boost: { title: 3, path: 1.5 }, combineWith: "OR" },
    });
    this.#index.addAll(
      sections.map((section, id) => ({
        id,
        title: section.headings.at(-1) ?? "",
        path: `${section.headings.slice(0, -1).join(" ")} ${section.file}`,
        text: section.text,
      })),
    );
  }

  get size(): number {
    return this.#sections.length;
  }

  /** The best one to three sections, best first; none when nothing matches well. */
  find(question: string): Found[] {
    const terms = questionTerms(question);
    if (terms.length === 0) return [];
    const results = this.#index.search(terms.join(" "), {
      // Terms are normalized already.
      tokenize: (text) => text.split(" "),
      processTerm: (term) => term,
      prefix: (term) => term.length >= 4,
      fuzzy: (term) => (term.length >= 6 ? 0.2 : false),
      weights: { prefix: 0.6, fuzzy: 0.3 },
    });
    const known = terms.filter((term) => !isOpaque(term) || results.some((result) => holds(result, term)));
    const good = results.filter((result) => coversEnough(result, known));
    const best = good[0]?.score ?? 0;
    return good
      .filter((result) => result.score >= best * SCORE_SHARE_MIN)
      .slice(0, RESULTS_MAX)
      .flatMap((result) => {
        const section = this.#sections[result.id];
        return section === undefined ? [] : [{ section, terms: [...new Set(result.terms)] }];
      });
  }
}

/** What a question asks for: its terms, each once. */
export function questionTerms(question: string): string[] {
  const tokens = tokenize(question.slice(0, QUESTION_CHARACTERS_MAX));
  const terms = tokens.map(searchTerm).filter((term) => term !== undefined);
  return [...new Set(terms)].slice(0, TERMS_MAX);
}

/** Identifiers pasted into a question say nothing of its topic unless a document holds them. */
function isOpaque(term: string): boolean {
  return /\p{N}/u.test(term);
}

function holds(result: SearchResult, term: string): boolean {
  return result.queryTerms.includes(term);
}

function coversEnough(result: SearchResult, terms: readonly string[]): boolean {
  if (terms.length === 0) return false;
  const share = terms.filter((term) => holds(result, term)).length / terms.length;
  const inHeading = Object.values(result.match).some((fields) => fields.includes("title"));
  return share >= (inHeading ? COVERAGE_MIN_IN_HEADING : COVERAGE_MIN);
}
