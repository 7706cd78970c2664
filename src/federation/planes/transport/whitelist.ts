// What the homeserver really admits to federation: its own answer, not its configuration file.
// Invariants: an answer in another form is an error; the operator's token goes to the homeserver alone.
import { z } from "zod";
import { sha256Tagged } from "../../../domain/digest.ts";
import { DrawbridgeError } from "../../../domain/errors.ts";
import { readSecret } from "../../../runtime/secrets.ts";
import type { FederationConfig } from "../../config.ts";
import { callResource } from "../../homeserver/api.ts";
import type { DesiredInclude } from "./render.ts";

const PATH = "/_synapse/client/v1/config/federation_whitelist";

const Answer = z.object({ whitelist_enabled: z.boolean(), whitelist: z.array(z.string()) });

interface RunningWhitelist {
  /** Without a whitelist, every server is admitted. */
  readonly enabled: boolean;
  /** Sorted. */
  readonly servers: readonly string[];
  /** SHA-256, tagged, of the sorted names, a line each. */
  readonly digest: string;
}

/**
 * Asks the running homeserver (`GET /_synapse/client/v1/config/federation_whitelist`).
 * @returns undefined when it does not answer
 * @throws DrawbridgeError `homeserver_refused`, `secret_unavailable`
 */
export async function runningWhitelist(
  config: Pick<FederationConfig, "directory" | "homeserver">,
): Promise<RunningWhitelist | undefined> {
  const token = readSecret(config.homeserver.operatorToken, config.directory);
  const answer = await callResource(config.homeserver.url, { method: "GET", path: PATH, token });
  if (answer === undefined || answer.status >= 500) return undefined;
  const parsed = Answer.safeParse(answer.body);
  if (answer.status !== 200 || !parsed.success) {
    throw new DrawbridgeError(
      "homeserver_refused",
      `the homeserver refused to show its federation whitelist: HTTP ${answer.status}`,
      {
        hint:
          answer.status === 404
            ? "Have the homeserver read transport.includeFile beside homeserver.yaml (--config-path), and restart it once."
            : "Check the token that homeserver.operatorToken names.",
      },
    );
  }
  const servers = [...new Set(parsed.data.whitelist)].sort();
  return { enabled: parsed.data.whitelist_enabled, servers, digest: whitelistDigest(servers) };
}

/** Whether the running homeserver admits exactly the declared servers. */
export function isInForce(running: RunningWhitelist | undefined, include: DesiredInclude): boolean {
  return running?.enabled === true && running.digest === whitelistDigest(include.whitelist);
}

/** The digest of sorted server names. */
function whitelistDigest(servers: readonly string[]): string {
  return sha256Tagged(servers.map((server) => `${server}\n`).join(""));
}
