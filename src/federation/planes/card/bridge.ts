// What the bridge says: by its health resource (/readyz) which agents.yaml it has in force, by its audit file whose
// cards it trusts.
import { type FileHandle, open } from "node:fs/promises";
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
const NEWLINE = 0x0a;

const CardDecision = z.object({
  schema: z.literal(SCHEMA),
  outcome: z.enum(["accepted", "rejected"]),
  reason: z.enum(["agent_card_verified", "agent_card_untrusted"]),
  target: z.object({ agent: z.string(), fingerprint: z.literal("none").or(Sha256Digest) }),
});
export type CardDecision = z.output<typeof CardDecision>;

/**
 * The bridge's last word on each agent's card, from its audit file (svc.agent_card.v1, one JSON line each). A line is
 * read once, and counts once it is whole; a file that was replaced, or is shorter than before, is read from its start.
 */
export class CardAudit {
  readonly #file: string;
  /** Which file was read: another one of the same name is another. */
  #identity = "";
  /** Behind the last whole line. */
  #position = 0;
  readonly #last = new Map<string, CardDecision>();

  constructor(file: string) {
    this.#file = file;
  }

  /** The last decision on each agent so far; undefined when the file cannot be read. */
  async lastDecisions(): Promise<ReadonlyMap<string, CardDecision> | undefined> {
    let handle: FileHandle | undefined;
    try {
      handle = await open(this.#file, "r");
      const { dev, ino, birthtimeMs, size } = await handle.stat();
      // The number of a file that was removed is given to the next one.
      const identity = `${dev} ${ino} ${birthtimeMs}`;
      if (identity !== this.#identity || size < this.#position) {
        this.#identity = identity;
        this.#position = 0;
        this.#last.clear();
      }
      await this.#readOn(handle);
      return new Map(this.#last);
    } catch {
      this.#identity = "";
      return undefined;
    } finally {
      await handle?.close();
    }
  }

  async #readOn(handle: FileHandle): Promise<void> {
    let partial: Buffer = Buffer.alloc(0);
    let lineAt = this.#position;
    for await (const chunk of handle.createReadStream({ start: lineAt })) {
      const read = Buffer.concat([partial, chunk]);
      const whole = read.lastIndexOf(NEWLINE) + 1;
      for (const line of read.toString("utf8", 0, whole).split("\n")) this.#take(line);
      lineAt += whole;
      this.#position = lineAt;
      partial = read.subarray(whole);
    }
  }

  #take(line: string): void {
    // Most lines are about delegations.
    if (!line.includes(SCHEMA)) return;
    const { data } = CardDecision.safeParse(parseJson(line));
    if (data !== undefined) this.#last.set(data.target.agent, data);
  }
}
