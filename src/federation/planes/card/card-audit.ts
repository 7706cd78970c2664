// The bridge's last word on each agent's card, from its audit file (svc.agent_card.v1, one JSON line each).
import { createReadStream } from "node:fs";
import { createInterface } from "node:readline";
import { z } from "zod";

const SCHEMA = "svc.agent_card.v1";

const CardDecision = z.object({
  schema: z.literal(SCHEMA),
  outcome: z.enum(["accepted", "rejected"]),
  reason: z.enum(["agent_card_verified", "agent_card_untrusted"]),
  target: z.object({ agent: z.string(), fingerprint: z.string().regex(/^(?:none|sha256:[0-9a-f]{64})$/) }),
});
export type CardDecision = z.output<typeof CardDecision>;

/** The last decision on each agent; undefined when the file cannot be read. */
export async function lastCardDecisions(
  file: string,
): Promise<ReadonlyMap<string, CardDecision> | undefined> {
  const last = new Map<string, CardDecision>();
  const input = createReadStream(file, "utf8");
  try {
    for await (const line of createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY })) {
      // Most lines are about delegations.
      if (!line.includes(SCHEMA)) continue;
      const decision = CardDecision.safeParse(parseJson(line));
      if (decision.success) last.set(decision.data.target.agent, decision.data);
    }
    return last;
  } catch {
    return undefined;
  } finally {
    input.destroy();
  }
}

function parseJson(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}
