// Finds the sections that answer a question (BM25+ by MiniSearch).
// Invariants: a section counts as an answer only when it holds most of the question's terms; documents and
// questions are cut into terms the same way, which knows no language but English plurals and function words.
import MiniSearch, { type SearchResult } from "minisearch";
import type { Section } from "./documents.ts";

const TERM = /[\p{L}\p{N}]+(?:[_.'’-][\p{L}\p{N}]+)*/gu;

/** Words that say how something is asked, not what. */
const STOP_WORDS: ReadonlySet<string> = new Set(
  (
    "a an and any anyone are as at be been being but by can could did do does doing done each either else ever " +
    "every explain describe for from get gets give given go goes had happen happens has have having he hello her " +
    "here hi him his how i if in into is it its just kindly know let like long many may me mean means might more " +
    "most much must my need no nor not now of off on one or our out over own please shall she should so some such " +
    "tell than that the their them then there these they thing this those to too under up upon us use used very " +
    "was we were what when where whether which while who whom whose why will with within without would you your"
  ).split(" "),
);

/** Words and compounds; a compound such as `agents.yaml` yields its parts too. */
export function tokenize(text: string): string[] {
  const found = text.normalize("NFKC").match(TERM) ?? [];
  return found.flatMap((word) => {
    const parts = word.split(/[_.'’-]/);
    return parts.length > 1 ? [word, ...parts] : [word];
  });
}

/** Lower case, plural endings removed. */
export function normalizeTerm(token: string): string {
  const term = token.toLowerCase().replace(/['’]s$/, "");
  if (term.length > 4 && /(?:[^aeiou]ies)$/.test(term)) return `${term.slice(0, -3)}y`;
  if (term.length > 4 && /(?:sses|xes|ches|shes|zes)$/.test(term)) return term.slice(0, -2);
  if (term.length > 3 && /[^sui]s$/.test(term)) return term.slice(0, -1);
  return term;
}

/** A term worth searching for; undefined for a function word or a single letter. */
export function searchTerm(token: string): string | undefined {
  if (STOP_WORDS.has(token.toLowerCase())) return undefined;
  const term = normalizeTerm(token);
  return term.length < 2 ? undefined : term;
}

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

  get sections(): readonly Section[] {
    return this.#sections;
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
