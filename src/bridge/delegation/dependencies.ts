// What the delegation worker is given: every clock, store and connection it uses.
import type { Logger } from "pino";
import type { Clock, Random } from "../../domain/clock.ts";
import type { AgentDirectory } from "../agents/directory.ts";
import type { TrustGate } from "../agents/trust.ts";
import type { BridgeConfig } from "../config.ts";
import type { DelegationLedger, SendLedger } from "../ledger/types.ts";
import type { EventSender } from "../matrix/send.ts";
import type { AgentHttp } from "./a2a/http.ts";
import type { TokenSource } from "./a2a/tokens.ts";
import type { DelegationMetrics } from "./metrics.ts";

export type DelegationLimits = Pick<
  BridgeConfig["limits"],
  | "concurrency"
  | "dispatchDeadline"
  | "answerDeadline"
  | "agentRequestTimeout"
  | "answerBytes"
  | "lease"
  | "drain"
>;

export interface DelegationDependencies {
  readonly ledger: DelegationLedger & Pick<SendLedger, "recordSent">;
  readonly directory: AgentDirectory;
  readonly trust: TrustGate;
  readonly tokens: TokenSource;
  readonly http: AgentHttp;
  readonly sender: EventSender;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly metrics: DelegationMetrics;
  readonly limits: DelegationLimits;
  /** Names this process in the ledger; unique among all that ever run. */
  readonly holder: string;
}
