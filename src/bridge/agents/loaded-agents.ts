// Which agents have a ghost: agents.yaml, read again whenever somebody asks for them.
// Invariants: a version that is refused is logged once with line and hint, and is counted; a snapshot never changes; a
// fingerprint names one agent at one address under one pinned key, so that no other pin's decision is taken for this one's.
import type { Logger } from "pino";
import { sha256Tagged } from "../../domain/digest.ts";
import type { DrawbridgeError } from "../../domain/errors.ts";
import { type AgentId, type GhostMxid, ghostOf, type ServerName } from "../../domain/identifiers.ts";
import { type AgentEntry, AgentsFile, targetFingerprint } from "../../rendered-files/agents-file.ts";
import { ConfigError, parseYaml } from "../../runtime/load-yaml.ts";
import { ReloadedFile } from "../../runtime/reloaded-file.ts";

export interface AgentTarget {
  readonly agentId: AgentId;
  readonly ghost: GhostMxid;
  readonly entry: AgentEntry;
  /** `sha256:…` over the agent's name, card address and pinned identity. */
  readonly fingerprint: string;
}

export interface AgentsSnapshot {
  readonly byGhost: ReadonlyMap<GhostMxid, AgentTarget>;
  readonly partnerGhosts: AgentsFile["partnerGhosts"];
}

export type AgentDirectory = Pick<ReturnType<typeof watchAgentsFile>, "current">;

export interface WatchedDirectoryOptions {
  readonly file: string;
  readonly serverName: ServerName;
  readonly ghostPrefix: string;
  readonly log: Logger;
  readonly onRejected?: () => void;
}

const REJECTED_HINT =
  "Correct the file; until then the last good version stays in force. Replace it by a rename.";

/** @throws ConfigError or DrawbridgeError `config_unreadable` when the file cannot be used at the start */
export function watchAgentsFile({ file, serverName, ghostPrefix, log, onRejected }: WatchedDirectoryOptions) {
  const watched = new ReloadedFile<AgentsSnapshot>({ file, parse, onLoaded, onRefused });

  function parse(text: string): AgentsSnapshot {
    const byGhost = new Map<GhostMxid, AgentTarget>();
    const { agents, partnerGhosts } = parseYaml(AgentsFile, text, file);
    for (const [name, entry] of Object.entries(agents)) {
      const agentId = name as AgentId;
      const ghost = ghostOf(ghostPrefix, agentId, serverName);
      byGhost.set(ghost, { agentId, ghost, entry, fingerprint: targetFingerprint(agentId, entry) });
    }
    return { byGhost, partnerGhosts };
  }

  function onLoaded({ byGhost }: AgentsSnapshot): void {
    log.info({ event: "agents_file_loaded", agents: byGhost.size });
  }

  function onRefused(error: DrawbridgeError): void {
    onRejected?.();
    const why =
      error instanceof ConfigError
        ? { problems: error.problems, hint: REJECTED_HINT }
        : { code: error.code, hint: error.hint ?? REJECTED_HINT };
    log.error({ event: "agents_file_rejected", file, ...why });
  }

  return {
    /** The agents as the file says now; those of its last good version when it cannot be used. */
    async current(): Promise<AgentsSnapshot> {
      watched.check();
      return watched.inForce.value;
    },

    digest(): string {
      watched.check();
      return sha256Tagged(watched.inForce.text);
    },
  };
}
