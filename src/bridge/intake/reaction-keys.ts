// The keys of reactions, compared as people see them: with or without the marks that make a character an emoji, so that
// "1" stands for the keycap 1. Invariant: only a short text is a key, because anybody may react with a long one.

const LENGTH_MAX = 64;
const EMOJI_MARKS = /[\u{fe0f}\u{20e3}]/gu;
const plain = (key: string) => key.replace(EMOJI_MARKS, "").trim().toLowerCase();

export function sameKey(left: string, right: string): boolean {
  if (left.length > LENGTH_MAX || right.length > LENGTH_MAX) return false;
  return plain(left) === plain(right);
}
