// The trimmed message: what of a room event goes to the agent, and nothing else of it.
import { type GhostMxid, localpartOf } from "../../domain/identifiers.ts";

// Clients that know no rich replies put the quoted message before the answer, each line behind "> ".
const REPLY_FALLBACK = /^(?:> [^\n]*\n)+\n?/;

function literal(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

/**
 * The prompt of a message: without a quoted fallback, and without the mention it begins with.
 * @param displayName the ghost's name in rooms, where the configuration gives one
 */
export function promptOf(body: string, ghost: GhostMxid, displayName: string | undefined): string {
  const text = body.replace(REPLY_FALLBACK, "").trim();
  const names = [ghost, `@${localpartOf(ghost)}`, localpartOf(ghost), displayName].filter(
    (name) => name !== undefined,
  );
  const mention = new RegExp(`^(?:${names.map(literal).join("|")})(?:[:,]\\s*|\\s+|$)`, "i");
  const prompt = text.replace(mention, "").trim();
  // A message that is nothing but the mention still asks something: the mention itself.
  return prompt === "" ? text : prompt;
}
