// What a call to an agent can come to when it yields no answer: a closed set, so that callers decide
// every case. Invariants: a failure carries a kind, a status and a wait, never a word of what the agent,
// the gateway or the issuer wrote; `not_delivered` is said only when the agent cannot have the request.

export const A2A_FAILURES = [
  /** The request cannot have reached the agent. */
  "not_delivered",
  /** The agent may or may not have acted on it. */
  "ambiguous",
  /** 429: the agent or its gateway asks to wait. */
  "throttled",
  /** No token could be had, or a fresh one was refused with 401. */
  "unauthenticated",
  /** 403: this client may not call the agent. */
  "forbidden",
  /** 404: nothing answers at the agent's URL. */
  "not_found",
  /** The agent does not know the task. */
  "task_not_found",
  /** The agent does not offer the operation. */
  "unsupported",
  /** The agent answered the call with an error of its own. */
  "agent_error",
  /** The answer is not A2A. */
  "protocol",
  /** The answer is longer than allowed; the connection was dropped. */
  "too_large",
] as const;
export type A2aFailureKind = (typeof A2A_FAILURES)[number];

export class A2aFailure extends Error {
  readonly kind: A2aFailureKind;
  /** Milliseconds the other side asked to wait, if it did. */
  readonly retryAfterMs: number | undefined;

  constructor(kind: A2aFailureKind, retryAfterMs?: number) {
    super(`the call to the agent failed: ${kind}`);
    this.name = "A2aFailure";
    this.kind = kind;
    this.retryAfterMs = retryAfterMs;
  }
}
