// What the delegation worker counts. Every label is one of a closed set; none is content.
import type { TerminalReason, TerminalStage, TerminalState } from "../ledger/states.ts";
import type { AgentOperation } from "./a2a/agent-client.ts";
import type { A2aFailureKind } from "./a2a/failure.ts";
import type { TokenFailureCode } from "./a2a/tokens.ts";

/** Why a delegation was put back to be tried again. */
export type DeferReason = TerminalReason | "flow_failed" | "slot_yielded" | "reply_retry";

export interface DelegationMetrics {
  /** Delegations in this process's hands now. */
  inFlight(count: number): void;
  claimed(count: number): void;
  ended(state: TerminalState, stage: TerminalStage, reason: TerminalReason): void;
  deferred(reason: DeferReason): void;
  leaseLost(): void;
  /** A flow ended by an error that nobody expected; `code` is stable and content-free. */
  flowFailed(code: string): void;
  /** Milliseconds from the claim until the request was handed to the connection. */
  dispatchOverhead(ms: number): void;
  agentCall(operation: AgentOperation, outcome: "ok" | A2aFailureKind, ms: number): void;
  tokenRequest(outcome: "ok" | TokenFailureCode): void;
}
