// How large a benchmark is. `./task bench --short` makes each so small that it only shows that it works.

export const IS_SHORT = process.argv.includes("--short");

/** A size of a benchmark: the first, or the second in the short form. */
export const size = <Size>(full: Size, short: Size): Size => (IS_SHORT ? short : full);
