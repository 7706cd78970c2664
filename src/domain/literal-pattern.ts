// Texts as parts of regular expressions.

/** A text as a regular expression that matches exactly it, in JavaScript, Python and RE2 alike. */
export const literalPattern = (text: string): string => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
