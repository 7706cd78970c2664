// Which agents have a ghost: agents.yaml, read again whenever it changes.
// Invariants: a version that is refused is logged once with line and hint, and is counted; a snapshot never changes; a
// fingerprint names one agent at one address under one pinned key, so that no other pin's decision is taken for this one's.
import type { Logger } from "pino";
import type { Clock } from "../../domain/clock.ts";
import { sha256Tagged } from "../../domain/digest.ts";
import type { DrawbridgeError } from "../../domain/errors.ts";
import { type AgentId, type GhostMxid, ghostOf, type ServerName } from "../../domain/identifiers.ts";
import {
  type AgentEntry,
  AgentsFile,
  type PartnerGhosts,
  targetFingerprint,
} from "../../rendered-files/agents-file.ts";
import { ConfigError, parseYaml } from "../../runtime/load-yaml.ts";
import { ReloadedFile } from "../../runtime/reloaded-file.ts";
import { WorkLoop } from "../../runtime/work-loop.ts";

export interface AgentTarget {
  readonly agentId: AgentId;
  readonly ghost: GhostMxid;
  readonly entry: AgentEntry;
  /** `sha256:…` over the agent's name, card address and pinned identity. */
  readonly fingerprint: string;
}

export interface AgentsSnapshot {
  readonly byGhost: ReadonlyMap<GhostMxid, AgentTarget>;
  readonly partnerGhosts: readonly PartnerGhosts[];
  readonly revision: number;
}

export type AgentDirectory = Pick<WatchedAgentDirectory, "current" | "onChange" | "close">;

export interface WatchedDirectoryOptions {
  readonly file: string;
  readonly serverName: ServerName;
  readonly ghostPrefix: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly onRejected?: () => void;
}

const REJECTED_HINT =
  "Correct the file; until then the last good version stays in force. Replace it by a rename.";

type Agents = Omit<AgentsSnapshot, "revision">;

export class WatchedAgentDirectory {
  readonly #options: WatchedDirectoryOptions;
  readonly #listeners = new Set<(snapshot: AgentsSnapshot) => void>();
  readonly #loop: WorkLoop;
  readonly #file: ReloadedFile<Agents>;
  #snapshot: AgentsSnapshot;

  /** @throws ConfigError or DrawbridgeError `config_unreadable` when the file cannot be used at the start */
  constructor(options: WatchedDirectoryOptions) {
    this.#options = options;
    const { file, clock, log } = options;
    this.#file = new ReloadedFile({
      file,
      parse: (text) => this.#parse(text),
      onLoaded: (agents) => this.#loaded(agents),
      onRefused: (error) => this.#refused(error),
    });
    this.#snapshot = { ...this.#file.inForce.value, revision: 1 };
    this.#loop = new WorkLoop({
      clock,
      round: async () => this.#file.check(),
      onError: (error) => log.error({ event: "agents_file_check_failed", err: error }),
    });
    this.#loop.start();
  }

  /** The agents as the file says now; those of its last good version when it cannot be used. */
  async current(): Promise<AgentsSnapshot> {
    this.#file.check();
    return this.#snapshot;
  }

  /** SHA-256, tagged, of the text in force, after a check of the file. */
  digest(): string {
    this.#file.check();
    return sha256Tagged(this.#file.inForce.text);
  }

  /** Calls the listener after each change; returns how to stop that. */
  onChange(listener: (snapshot: AgentsSnapshot) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async close(): Promise<void> {
    this.#listeners.clear();
    await this.#loop.drain();
  }

  #loaded(agents: Agents): void {
    const { log } = this.#options;
    this.#snapshot = { ...agents, revision: this.#snapshot.revision + 1 };
    const { revision, byGhost } = this.#snapshot;
    log.info({ event: "agents_file_loaded", revision, agents: byGhost.size });
    for (const listener of this.#listeners) {
      try {
        listener(this.#snapshot);
      } catch (error) {
        log.error({ event: "agents_listener_failed", err: error });
      }
    }
  }

  #parse(text: string): Agents {
    const { file, ghostPrefix, serverName } = this.#options;
    const byGhost = new Map<GhostMxid, AgentTarget>();
    const { agents, partnerGhosts } = parseYaml(AgentsFile, text, file);
    for (const [name, entry] of Object.entries(agents)) {
      const agentId = name as AgentId;
      const ghost = ghostOf(ghostPrefix, agentId, serverName);
      byGhost.set(ghost, { agentId, ghost, entry, fingerprint: targetFingerprint(agentId, entry) });
    }
    return { byGhost, partnerGhosts };
  }

  #refused(error: DrawbridgeError): void {
    const { log, file, onRejected } = this.#options;
    onRejected?.();
    const why =
      error instanceof ConfigError
        ? { problems: error.problems, hint: REJECTED_HINT }
        : { code: error.code, hint: error.hint ?? REJECTED_HINT };
    log.error({ event: "agents_file_rejected", file, ...why });
  }
}
