// Which agents have a ghost: agents.yaml, read again whenever it changes.
// Invariants: a version that cannot be used leaves the last good one in force, is logged once with line and
// hint, and is counted; a snapshot never changes; a rewrite is noticed even when size and modification time stay
// the same; a fingerprint names one agent at one address under one pinned key, so that a decision about another
// pin is never taken for this one's.
import { readFileSync, statSync } from "node:fs";
import type { Logger } from "pino";
import type { Clock } from "../../domain/clock.ts";
import { sha256Tagged } from "../../domain/digest.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import {
  type AgentId,
  type GhostMxid,
  ghostOf,
  parseAgentId,
  type ServerName,
} from "../../domain/identifiers.ts";
import { type AgentEntry, AgentsFile, type PartnerGhosts } from "../../rendered-files/agents-file.ts";
import { targetFingerprint } from "../../rendered-files/target-fingerprint.ts";
import { ConfigError, parseYaml } from "../../runtime/load-yaml.ts";
import { WorkLoop } from "../../runtime/work-loop.ts";

/** An agent as configured. */
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
  /** Grows by one with each version of the file that was taken up. */
  readonly revision: number;
}

export interface AgentDirectory {
  /** The agents as the file says now; those of its last good version when it cannot be used. */
  current(): Promise<AgentsSnapshot>;
  /** Calls the listener after each change; returns how to stop that. */
  onChange(listener: (snapshot: AgentsSnapshot) => void): () => void;
  close(): Promise<void>;
}

export interface WatchedDirectoryOptions {
  readonly file: string;
  readonly serverName: ServerName;
  readonly ghostPrefix: string;
  readonly clock: Clock;
  readonly log: Logger;
  /** Called for each version that is refused. */
  readonly onRejected?: () => void;
}

// File systems stamp modification times by a coarse clock: within this time of a change, the same stamp
// does not prove the same content.
const UNSETTLED_MS = 1_000;
const REJECTED_HINT =
  "Correct the file; until then the last good version stays in force. Replace it by a rename.";

interface FileState {
  readonly stamp: string;
  /** Whether the same stamp proves the same text. */
  readonly settled: boolean;
  readonly text: string;
}

function stampOf(file: string): { text: string; modifiedMs: number } {
  const { ino, size, mtimeNs, ctimeNs, mtimeMs } = statSync(file, { bigint: true });
  return { text: `${ino}:${size}:${mtimeNs}:${ctimeNs}`, modifiedMs: Number(mtimeMs) };
}

/** agents.yaml as a directory, checked for changes until it is closed. */
export class WatchedAgentDirectory implements AgentDirectory {
  readonly #options: WatchedDirectoryOptions;
  readonly #listeners = new Set<(snapshot: AgentsSnapshot) => void>();
  readonly #loop: WorkLoop;
  #snapshot: AgentsSnapshot;
  #digest: string;
  /** The file as it was last read; undefined while it cannot be read. */
  #file: FileState | undefined;

  /** @throws ConfigError or DrawbridgeError `config_unreadable` when the file cannot be used at the start */
  constructor(options: WatchedDirectoryOptions) {
    this.#options = options;
    const file = this.#read();
    this.#file = file;
    this.#snapshot = { ...this.#parse(file.text), revision: 1 };
    this.#digest = sha256Tagged(file.text);
    this.#loop = new WorkLoop({
      clock: options.clock,
      round: async () => this.#check(),
      onError: (error) => options.log.error({ event: "agents_file_check_failed", err: error }),
    });
    this.#loop.start();
  }

  async current(): Promise<AgentsSnapshot> {
    this.#check();
    return this.#snapshot;
  }

  /** SHA-256, tagged, of the text in force, after a check of the file. */
  digest(): string {
    this.#check();
    return this.#digest;
  }

  onChange(listener: (snapshot: AgentsSnapshot) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async close(): Promise<void> {
    this.#listeners.clear();
    await this.#loop.drain();
  }

  #check(): void {
    const before = this.#file;
    let parsed: Omit<AgentsSnapshot, "revision">;
    try {
      if (before?.settled === true && this.#isUnchanged(before)) return;
      this.#file = undefined;
      this.#file = this.#read();
      if (this.#file.text === before?.text) return;
      parsed = this.#parse(this.#file.text);
      this.#digest = sha256Tagged(this.#file.text);
    } catch (error) {
      // Already logged: the file could not be read the last time either.
      if (this.#file === undefined && before === undefined) return;
      this.#reject(error);
      return;
    }
    this.#snapshot = { ...parsed, revision: this.#snapshot.revision + 1 };
    const { revision, byGhost } = this.#snapshot;
    this.#options.log.info({ event: "agents_file_loaded", revision, agents: byGhost.size });
    for (const listener of this.#listeners) {
      try {
        listener(this.#snapshot);
      } catch (error) {
        // A failing listener must not fail the reader of the directory.
        this.#options.log.error({ event: "agents_listener_failed", err: error });
      }
    }
  }

  /** False too when the file is gone: reading it reports why. */
  #isUnchanged({ stamp }: FileState): boolean {
    try {
      return stampOf(this.#options.file).text === stamp;
    } catch {
      return false;
    }
  }

  #read(): FileState {
    try {
      // Stamped before it is read, so that a change in between is found at the next check.
      const stamp = stampOf(this.#options.file);
      const text = readFileSync(this.#options.file, "utf8");
      const settled = Math.abs(this.#options.clock.now() - stamp.modifiedMs) > UNSETTLED_MS;
      return { stamp: stamp.text, settled, text };
    } catch (cause) {
      const code = (cause as NodeJS.ErrnoException).code ?? "unknown error";
      throw new DrawbridgeError("config_unreadable", `cannot read ${this.#options.file}: ${code}`, {
        hint: "Check the path and that this user may read the file.",
        cause,
      });
    }
  }

  #parse(text: string): Omit<AgentsSnapshot, "revision"> {
    const { file, ghostPrefix, serverName } = this.#options;
    const byGhost = new Map<GhostMxid, AgentTarget>();
    const { agents, partnerGhosts } = parseYaml(AgentsFile, text, file);
    for (const [name, entry] of Object.entries(agents)) {
      const agentId = parseAgentId(name);
      if (agentId === undefined) throw new DrawbridgeError("internal", "an agent's name was not checked");
      const ghost = ghostOf(ghostPrefix, agentId, serverName);
      byGhost.set(ghost, { agentId, ghost, entry, fingerprint: targetFingerprint(agentId, entry) });
    }
    return { byGhost, partnerGhosts };
  }

  #reject(error: unknown): void {
    const { log, file, onRejected } = this.#options;
    onRejected?.();
    if (error instanceof ConfigError) {
      log.error({ event: "agents_file_rejected", file, problems: error.problems, hint: REJECTED_HINT });
    } else if (error instanceof DrawbridgeError) {
      log.error({ event: "agents_file_rejected", file, code: error.code, hint: error.hint ?? REJECTED_HINT });
    } else throw error;
  }
}
