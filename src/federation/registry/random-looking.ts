// Whether a text holds a word that a machine seems to have drawn at random, as keys, tokens and generated
// passwords are. It is a guess: the property tests say how good. Invariant: linear in the length of the text.

/** Shorter ones cannot be told from abbreviations and version numbers. */
const LENGTH_MIN = 20;
const HEX_LENGTH_MIN = 32;
/** The mean length of runs of one kind of character: about 1.7 in base64, 5 in words. */
const MEAN_RUN_MAX = 2.9;

/** Identifiers, however random they are: UUIDs, and digests with the name of their algorithm. */
const IDENTIFIER =
  /\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\bsha(?:256|384|512)[:-][A-Za-z0-9+/_=-]{43,}/gi;
/** Everything that base64, base64url, base32 and hexadecimal are made of. */
const WORD = /[A-Za-z0-9+/_=-]{20,}/g;

export function holdsRandomWord(text: string): boolean {
  for (const [word] of text.replaceAll(IDENTIFIER, " ").matchAll(WORD)) {
    // A path is judged by its parts as well, so that words around a token do not hide it.
    if (looksRandom(word) || word.split(/[/=]/).some(looksRandom)) return true;
  }
  return false;
}

function looksRandom(word: string): boolean {
  if (word.length < LENGTH_MIN) return false;
  if (/^[0-9a-f]+$/i.test(word)) return word.length >= HEX_LENGTH_MIN && new Set(word).size >= 6;
  const parts = word.split(/[^A-Za-z0-9]+/);
  // What people write seldom changes between letters, capitals and digits; what machines draw, all the time.
  // Short parts are left out: `k8s-v2-x86` is a name.
  const mixed = isMixed(parts.join(""), LENGTH_MIN - 3) && parts.some((part) => isMixed(part, 10));
  return mixed || parts.some(isDrawnFromOneCase);
}

function isMixed(part: string, lengthMin: number): boolean {
  const runs = part.match(/[A-Z]?[a-z]+|[A-Z]+|[0-9]+/g) ?? [];
  return part.length >= lengthMin && part.length / runs.length < MEAN_RUN_MAX;
}

/** Lower-case or upper-case letters with digits strewn in, as base32 has them, or letters no tongue can say. */
function isDrawnFromOneCase(part: string): boolean {
  if (part.length < 24 || (part !== part.toLowerCase() && part !== part.toUpperCase())) return false;
  const digitRuns = part.match(/[0-9]+/g) ?? [];
  if (digitRuns.length >= 3) return true;
  const vowels = part.match(/[aeiouy]/gi) ?? [];
  return vowels.length / part.length < 0.22 && /[^aeiouy0-9]{6}/i.test(part);
}
