// The marks of automated messages: written on everything that a ghost says, and never answered in what others say. Both
// proposals are open: their unstable names are written, and both names are read. MSC3955 (m.automated) is true or absent.
// MSC4295 (m.bounce_limit) stands outside the ciphertext: how often programs may still answer; 0 and absent for a person's.
import type { UnknownObject } from "../../domain/json.ts";

const AUTOMATED_NAMES = ["org.matrix.msc1767.automated", "m.automated"] as const;
const BOUNCE_LIMIT_NAMES = ["io.github.m13253.bounce_limit", "m.bounce_limit"] as const;

export const AUTOMATED_MARKS: UnknownObject = { [AUTOMATED_NAMES[0]]: true, [BOUNCE_LIMIT_NAMES[0]]: 1 };

/** Whether a content says that a program sent it. A limit above 1 gets no answer either: an agent answers people. */
export function isMarkedAutomated(content: UnknownObject): boolean {
  return (
    AUTOMATED_NAMES.some((name) => content[name] === true) ||
    BOUNCE_LIMIT_NAMES.some((name) => content[name] !== undefined && content[name] !== 0)
  );
}
