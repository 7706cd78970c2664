// From text to search terms, the same way for documents and for questions.
// Invariant: deterministic and language-neutral but for English plurals and function words.

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
