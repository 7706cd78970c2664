// What the bridge says: by its health resource (/readyz) which agents.yaml it has in force, by its audit file whose
// cards it trusts.
import { open } from "node:fs/promises";
import { z } from "zod";
import type { Clock } from "../../../domain/clock.ts";
import { Sha256Digest } from "../../../domain/digest.ts";
import { parseJson } from "../../../domain/json.ts";
import { requestJson } from "../../../runtime/http.ts";

const TIMEOUT_MS = 2_000;
const POLL_MS = 50;
/** The bridge reads its file at every request; a second request is needed only when it is just starting. */
const IN_FORCE_WITHIN_MS = 5_000;

const Health = z.object({ agents: z.object({ digest: z.string() }) });

/** Digest of the agents.yaml in force; undefined when no bridge answers. It need not be ready otherwise. */
export async function bridgeAgentsDigest(healthUrl: string): Promise<string | undefined> {
  try {
    const { body } = await requestJson(healthUrl, { timeoutMs: TIMEOUT_MS, bytesMax: 1_048_576 });
    return Health.safeParse(body).data?.agents.digest;
  } catch {
    return undefined;
  }
}

/** Waits for a digest. `another`: the bridge answers, and has refused the file or reads another one. */
export async function untilAgentsInForce(
  healthUrl: string,
  digest: string,
  clock: Clock,
): Promise<"in_force" | "another" | "not_running"> {
  for (const deadline = clock.now() + IN_FORCE_WITHIN_MS; ; await clock.sleep(POLL_MS)) {
    const found = await bridgeAgentsDigest(healthUrl);
    if (found === digest) return "in_force";
    if (found === undefined) return "not_running";
    if (clock.now() >= deadline) return "another";
  }
}

const SCHEMA = "svc.agent_card.v1";

const CardDecision = z.object({
  schema: z.literal(SCHEMA),
  outcome: z.enum(["accepted", "rejected"]),
  reason: z.enum(["agent_card_verified", "agent_card_untrusted"]),
  target: z.object({ agent: z.string(), fingerprint: z.literal("none").or(Sha256Digest) }),
});
export type CardDecision = z.output<typeof CardDecision>;

/** The last decision on each agent's card, by the bridge's audit file; undefined when that cannot be read. */
export async function lastCardDecisions(
  file: string,
): Promise<ReadonlyMap<string, CardDecision> | undefined> {
  const last = new Map<string, CardDecision>();
  try {
    const handle = await open(file);
    for await (const line of handle.readLines()) {
      // Most lines are about delegations.
      if (!line.includes(SCHEMA)) continue;
      const { data } = CardDecision.safeParse(parseJson(line));
      if (data !== undefined) last.set(data.target.agent, data);
    }
    return last;
  } catch {
    return undefined;
  }
}
