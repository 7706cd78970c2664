// Texts as parts of regular expressions.

/** A text as a regular expression that matches exactly it, in JavaScript, Python and RE2 alike. */
export function literalPattern(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}
