// How much a record, a file that is handed over and a statement may hold: whoever writes, reads or verifies asks
// the same. Invariant: what one side makes within these bounds, the other's verifier reads.

/** Stages' statements: twelve, and room for as many more as a forgery needs to be told apart. */
export const RECORD_STAGES_MAX = 64;
/** Items of evidence; a completion names each. */
export const RECORD_EVIDENCE_MAX = 200_000;
/** A record of ten thousand rooms has some 20 MB. */
export const RECORD_BYTES_MAX = 256 * 1024 * 1024;
/** One statement: a completion names a few hundred thousand items at most. */
export const STATEMENT_BYTES_MAX = 64 * 1024 * 1024;
