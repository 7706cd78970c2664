// Cuts a long text into pieces that each fit one event.
// Invariants: the pieces joined are the text, to the last code unit; each is at most `bytesMax` long as a
// JSON string; no surrogate pair is cut; a cut falls after a blank line if one is near enough, else after a
// line, else after a space, else between two code points.

/** Bytes of a well-formed text as the inside of a JSON string (canonical JSON escapes the same). */
export function jsonBytes(text: string): number {
  return Buffer.byteLength(JSON.stringify(text), "utf8") - 2;
}

function codePointJsonBytes(codePoint: number): number {
  if (codePoint === 0x22 || codePoint === 0x5c) return 2;
  if (codePoint < 0x20) {
    // Backspace, tab, line feed, form feed and carriage return have short escapes.
    const short = codePoint >= 0x08 && codePoint <= 0x0d && codePoint !== 0x0b;
    return short ? 2 : 6;
  }
  if (codePoint < 0x80) return 1;
  if (codePoint < 0x800) return 2;
  return codePoint < 0x10000 ? 3 : 4;
}

/** The first index that no longer fits: everything before it, from `start`, is at most `bytesMax` long. */
function reach(text: string, start: number, bytesMax: number): number {
  let bytes = 0;
  let index = start;
  while (index < text.length) {
    const codePoint = text.codePointAt(index) ?? 0;
    bytes += codePointJsonBytes(codePoint);
    if (bytes > bytesMax) return index;
    index += codePoint > 0xffff ? 2 : 1;
  }
  return index;
}

/** Where to cut between `start` and `end`: after the last good boundary in the second half of the range. */
function cutBefore(text: string, start: number, end: number): number {
  const earliest = start + Math.floor((end - start) / 2);
  // Searched in a copy, because a search for what is not there goes back to the beginning of the text.
  const range = text.slice(earliest, end);
  for (const boundary of ["\n\n", "\n", " "]) {
    const at = range.lastIndexOf(boundary);
    if (at >= 0) return earliest + at + boundary.length;
  }
  return end;
}

/**
 * Splits a well-formed text.
 * @param bytesMax at least 6, the longest a single code point can become
 */
export function splitText(text: string, bytesMax: number): string[] {
  const pieces: string[] = [];
  let start = 0;
  while (start < text.length) {
    const end = reach(text, start, bytesMax);
    const cut = end === text.length ? end : cutBefore(text, start, end);
    pieces.push(text.slice(start, cut));
    start = cut;
  }
  return pieces;
}
