// What a plane names as out of reach, as a word of a statement that an operator can also type. Pure.

const INVISIBLE = /[^\x21-\x7e]/g;
const LENGTH_MAX = 512;

/** `!room at server`, as the rooms plane names a server that is behind, becomes `!room@server`. */
export function subjectWord(named: string): string {
  const word = named.replaceAll(" at ", "@").replaceAll(INVISIBLE, "_").slice(0, LENGTH_MAX);
  return word === "" ? "_" : word;
}
