// Random text and URLs for property tests. fast-check lists all characters of Unicode before the first value of its own,
// which takes each process nearly a second.
import fc from "fast-check";

const SURROGATES_FROM = 0xd800;
const SURROGATES = 0x800;

/** The strings of one character, in any script: what `unit: "binary"` of fast-check means. */
export const anyCharacter: fc.Arbitrary<string> = fc
  .nat({ max: 0x10ffff - SURROGATES })
  .map(characterAt, (value) => {
    const code = typeof value === "string" ? (value.codePointAt(0) ?? 0) : 0;
    const position = code < SURROGATES_FROM ? code : code - SURROGATES;
    // fast-check mixes in names such as `__proto__` where it can take them apart into such characters.
    if (position < 0 || characterAt(position) !== value) throw new TypeError("not one character");
    return position;
  });

function characterAt(position: number): string {
  return String.fromCodePoint(position < SURROGATES_FROM ? position : position + SURROGATES);
}

/** Well-formed text of any characters. */
export function unicodeText(constraints: Omit<fc.StringConstraints, "unit"> = {}): fc.Arbitrary<string> {
  return fc.string({ ...constraints, unit: anyCharacter });
}

/** URLs with any characters in their path, encoded. */
export const anyUrl: fc.Arbitrary<string> = fc
  .tuple(fc.constantFrom("http", "https"), fc.domain(), fc.array(unicodeText()))
  .map(([scheme, host, path]) => `${scheme}://${host}/${path.map(encodeURIComponent).join("/")}`);
