// A text of an agent on one line. Invariants: nothing invisible is in it, nothing in it notifies a room, and it is bounded.
import { visibleLine } from "../../domain/printable.ts";

/** Between `@` and `room`, so that no client takes it for a mention of everybody (Unicode U+2060, word joiner). */
const NO_MENTION = "@\u2060";

export function withoutRoomMention(text: string): string {
  return text.replaceAll(/@(?=room\b)/gi, NO_MENTION);
}

/** What is invisible goes, runs of white space become one space, and what is too long is cut. */
export function plainLine(text: string, charactersMax: number): string {
  const plain = visibleLine(text);
  const characters = [...plain];
  const cut =
    characters.length > charactersMax ? `${characters.slice(0, charactersMax - 1).join("")}…` : plain;
  return withoutRoomMention(cut);
}
