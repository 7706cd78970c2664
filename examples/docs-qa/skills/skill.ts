// What a skill of the sample agent is: a sequence of steps that ends its task, or that ends in a question back.
// Invariant: a skill is run again from its beginning with all messages of the caller, after a reply and after a
// crash; so its steps depend on the messages alone.
import type { Part } from "@a2a-js/sdk";

export type Step =
  /** What the agent is doing; shown while it works. */
  | { readonly kind: "progress"; readonly text: string }
  | { readonly kind: "artifact"; readonly name: string; readonly part: Part }
  /** A question back. The task waits for the caller's next message. */
  | { readonly kind: "ask"; readonly text: string; readonly options: readonly string[] };

/** A text file that came with a message. */
export interface TextFile {
  readonly name: string;
  readonly text: string;
}

/**
 * Works on the caller's messages of the task, the first one first, as text, until the signal says that it is cancelled.
 * @param files those of all the messages
 */
export type Skill = (
  messages: readonly string[],
  signal: AbortSignal,
  files: readonly TextFile[],
) => AsyncIterable<Step>;

export function textPart(text: string, mediaType = "text/plain"): Part {
  return { content: { $case: "text", value: text }, mediaType, filename: "", metadata: undefined };
}

/** The options of a question, numbered from 1, as structured data beside its text. */
export function optionsPart(options: readonly string[]): Part {
  const value = { options: options.map((label, index) => ({ id: String(index + 1), label })) };
  return {
    content: { $case: "data", value },
    mediaType: "application/json",
    filename: "",
    metadata: undefined,
  };
}

/** The option that a reply names by its number or its label; undefined when it names none, or two. */
export function chosenOption(options: readonly string[], reply: string): number | undefined {
  const text = reply.trim().toLowerCase();
  const number = /^\(?([1-9])[.)]?$/.exec(text)?.[1];
  if (number !== undefined) return Number(number) <= options.length ? Number(number) - 1 : undefined;
  const named = options.flatMap((label, index) => (text.includes(label.toLowerCase()) ? [index] : []));
  return named.length === 1 ? named[0] : undefined;
}
