// The keys of reactions, compared as people see them: with or without the marks that make a character an emoji, so that
// "1" stands for the keycap 1.

const EMOJI_MARKS = /[\u{fe0f}\u{20e3}]/gu;
const plain = (key: string) => key.replace(EMOJI_MARKS, "").trim().toLowerCase();

export function sameKey(left: string, right: string): boolean {
  return plain(left) === plain(right);
}
