// A gate at which several wait for each other, and learn whether something is so for all of them.
// Invariant: whoever has come through once changes nothing by coming again.

/** Tells how it is here. Resolves when everybody has told it: whether it is so for all. */
export type Pass = (isSo: boolean) => Promise<boolean>;

/** @returns what gives each of `count` their own pass */
export function gateFor(count: number): () => Pass {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  let missing = count;
  let isSoForAll = true;
  return () => {
    let isTold = false;
    return (isSo) => {
      if (!isTold) {
        isTold = true;
        isSoForAll &&= isSo;
        missing -= 1;
        if (missing === 0) resolve(isSoForAll);
      }
      return promise;
    };
  };
}
