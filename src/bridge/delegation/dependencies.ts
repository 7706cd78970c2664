// What the delegation worker is given: every clock, store and connection it uses, and what it counts.
import type { Logger } from "pino";
import type { Clock, Random } from "../../domain/clock.ts";
import type { GhostMxid, RoomId } from "../../domain/identifiers.ts";
import type { AgentDirectory } from "../agents/loaded-agents.ts";
import type { TrustGate } from "../agents/trust.ts";
import type { BridgeConfig } from "../config.ts";
import type { DelegationLedger } from "../ledger/ledger.ts";
import type { TerminalReason, TerminalStage, TerminalState } from "../ledger/states.ts";
import type { createDownloader, createUploader } from "../matrix/files.ts";
import type { SaidIn } from "../matrix/homeserver.ts";
import type { Outcome } from "../matrix/request-result.ts";
import type { createEventSender } from "../matrix/send-once.ts";
import type { TextsOf } from "../texts/language-of-room.ts";
import type { AgentOperation } from "./a2a/agent-client.ts";
import type { A2aFailureKind } from "./a2a/classify-failure.ts";
import type { AgentHttp } from "./a2a/http-exchange.ts";
import type { createTokenSource, TokenFailureCode } from "./a2a/token-cache.ts";
import type { createTraces } from "./traces.ts";

export type DelegationLimits = BridgeConfig["limits"];

export interface DelegationDependencies {
  readonly ledger: DelegationLedger;
  readonly directory: AgentDirectory;
  readonly trust: TrustGate;
  readonly tokens: ReturnType<typeof createTokenSource>;
  readonly http: AgentHttp;
  readonly sender: ReturnType<typeof createEventSender>;
  readonly download: ReturnType<typeof createDownloader>;
  /** Whether the homeserver has accepted an event into its room. */
  readonly isAccepted: (
    ghost: GhostMxid,
    room: RoomId,
    said: SaidIn,
    signal: AbortSignal,
  ) => Promise<Outcome<boolean>>;
  readonly upload: ReturnType<typeof createUploader>;
  readonly textsOf: TextsOf;
  /** Shows in a room that a ghost is at work, or no longer. It is tried once, and nothing waits for it. */
  readonly typing: (room: RoomId, ghost: GhostMxid, isTyping: boolean) => void;
  /** Whether a reaction chooses an option of an agent's question in a room. */
  readonly takesReactions: (room: RoomId) => Promise<boolean>;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly metrics: DelegationObserver;
  readonly traces?: ReturnType<typeof createTraces> | undefined;
  readonly limits: DelegationLimits;
  /** Whether this process may claim: not while the database, with its right to, is away. */
  readonly mayClaim: () => boolean;
  /** Whether this process surely counts as alive: the leases of one that has ended are others' at once. */
  readonly isAlive: () => boolean;
  /** Names this process in the ledger; unique among all that ever run. */
  readonly holder: string;
}

export type DeferReason = TerminalReason | "flow_failed" | "task_open" | "input_open" | "reply_retry";

/** What the delegation worker counts. Every label is one of a closed set; none is content. */
export interface DelegationObserver {
  ended(state: TerminalState, stage: TerminalStage, reason: TerminalReason): void;
  deferred(reason: DeferReason): void;
  leaseLost(): void;
  /** A running delegation ended by an error that nobody expected; `code` is stable and content-free. */
  flowFailed(code: string): void;
  /** Milliseconds from the claim until the request was handed to the connection. */
  dispatchOverhead(ms: number): void;
  agentCall(operation: AgentOperation, outcome: "ok" | A2aFailureKind, ms: number): void;
  tokenRequest(outcome: "ok" | TokenFailureCode): void;
}
