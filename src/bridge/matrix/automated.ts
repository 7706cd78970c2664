// The marks of automated messages: written on everything that a ghost says, and read from what others say.
// Invariant: a marked message is never answered. Both proposals are open, so their unstable names are written, and both
// the unstable and the proposed names are read.
// - MSC3955 (m.automated): a boolean; other values count as absent. Its unstable prefix is that of MSC1767.
// - MSC4295 (m.bounce_limit): how often the message may still be answered by programs; 1: not at all. It stands outside
//   the ciphertext. Absent and 0: a person's message; what is no integer from 1 counts as 1.
import type { UnknownObject } from "../../domain/json.ts";

const AUTOMATED_NAMES = ["org.matrix.msc1767.automated", "m.automated"] as const;
const BOUNCE_LIMIT_NAMES = ["io.github.m13253.bounce_limit", "m.bounce_limit"] as const;

/** What everything that a ghost says carries, inside the ciphertext and outside. */
export const AUTOMATED_MARKS: UnknownObject = {
  [AUTOMATED_NAMES[0]]: true,
  [BOUNCE_LIMIT_NAMES[0]]: 1,
};

/** Whether a content says that a program sent it. A limit above 1 gets no answer either: an agent answers people. */
export function isMarkedAutomated(content: UnknownObject): boolean {
  return (
    AUTOMATED_NAMES.some((name) => content[name] === true) ||
    BOUNCE_LIMIT_NAMES.some((name) => content[name] !== undefined && content[name] !== 0)
  );
}
