// Which agents.yaml the bridge has in force, as its health resource says (/readyz).
import { request } from "undici";
import { z } from "zod";
import type { Clock } from "../../../domain/clock.ts";
import { readBoundedValue } from "../../../runtime/http.ts";

const TIMEOUT_MS = 2_000;
const POLL_MS = 50;
/** The bridge reads its file at every request; a second request is needed only when it is just starting. */
const IN_FORCE_WITHIN_MS = 5_000;

const Health = z.object({ agents: z.object({ digest: z.string() }) });

/** Digest of the agents.yaml in force; undefined when no bridge answers. It need not be ready otherwise. */
export async function bridgeAgentsDigest(healthUrl: string): Promise<string | undefined> {
  try {
    const { body } = await request(healthUrl, { signal: AbortSignal.timeout(TIMEOUT_MS) });
    const health = Health.safeParse(await readBoundedValue(body, 1_048_576));
    return health.success ? health.data.agents.digest : undefined;
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
