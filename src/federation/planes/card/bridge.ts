// What the bridge says: by its health resource (/readyz) which agents.yaml it has in force, by its audit file whose
// cards it trusts.
import { open } from "node:fs/promises";
import { resolve } from "node:path";
import { z } from "zod";
import type { Clock } from "../../../domain/clock.ts";
import { Sha256Digest, sha256Tagged } from "../../../domain/digest.ts";
import { DrawbridgeError } from "../../../domain/errors.ts";
import { parseJson } from "../../../domain/json.ts";
import { lookUntil } from "../../../runtime/concurrency.ts";
import { requestJson } from "../../../runtime/http.ts";
import type { FederationConfig } from "../../config.ts";
import type { ProgramFile } from "../file-target.ts";
import { CARD_AGENTS } from "./render.ts";

const TIMEOUT_MS = 2_000;
/** The bridge reads its file at every request; a second request is needed only when it is just starting. */
const IN_FORCE = { withinMs: 5_000, everyMs: 50 };

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

export function bridgeFile(
  { agentsFile, bridgeHealthUrl }: NonNullable<FederationConfig["card"]>,
  directory: string,
  clock: Clock,
): ProgramFile {
  const ask = () => bridgeAgentsDigest(bridgeHealthUrl);
  return {
    ...{ path: CARD_AGENTS, name: "agents", absent: "bridge_not_running" },
    target: resolve(directory, agentsFile),
    digest: ask,
    async untilInForce(text) {
      const wanted = sha256Tagged(text);
      const found = await lookUntil(clock, IN_FORCE, ask, (one) => one === undefined || one === wanted);
      if (found === undefined || found === wanted) return found !== undefined;
      throw new DrawbridgeError("program_failed", "the bridge has another agents.yaml in force", {
        hint: "Compare card.agentsFile with agentsFile in bridge.yaml; the bridge's log says at agents_file_rejected why it refuses one.",
      });
    },
  };
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
