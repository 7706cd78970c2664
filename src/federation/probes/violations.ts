// Finds in the border's violations why an event did not come in.

import { collectStream } from "../evidence/collect-stream.ts";
import type { EvidencePackBody } from "../evidence/pack.ts";
import type { Explanation } from "./probed-room.ts";

/** Looks an event up in the violations file; undefined when no line names it. */
export async function violationOf(
  file: string,
  partner: { readonly serverName: string; readonly azp: string },
  eventId: string,
): Promise<Explanation | undefined> {
  const window = { since: "1970-01-01T00:00:00.000Z", until: "9999-12-31T23:59:59.999Z" };
  const about = { ...partner, agents: new Set<string>() };
  const { items } = await collectStream("border_violations", file, about, window);
  const found = items.findLast(({ facts }) => isAbout(facts, eventId));
  if (found === undefined || found.facts.stream !== "border_violations") return undefined;
  const { reason, policy_digest } = found.facts;
  return { layer: "border", reason, references: policy_digest === null ? [] : [policy_digest] };
}

function isAbout(facts: EvidencePackBody["stream_items"][number]["facts"], eventId: string): boolean {
  return facts.stream === "border_violations" && facts.event === eventId;
}
