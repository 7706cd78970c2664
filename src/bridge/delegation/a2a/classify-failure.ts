// Why a call to an agent yielded no answer: a closed set of kinds, and the one table that maps HTTP, JSON-RPC and
// network errors to them. Invariants: a failure carries a kind and a wait, never text of the agent, the gateway or
// the issuer; `not_delivered` is used only when the agent cannot have the request; every doubt is `ambiguous`, so
// that the caller looks for its task before it sends again. docs/reference/delegation-outcomes.md has the results.
import { A2AError } from "@a2a-js/sdk/errors";
import { retryAfterMs } from "../../../runtime/http.ts";
import { NOT_PUBLIC_CODE } from "../../../runtime/public-addresses.ts";
import type { Exchange } from "./http-exchange.ts";
import { TimeUp } from "./time-limit.ts";

export const A2A_FAILURES = [
  /** The request cannot have reached the agent. */
  "not_delivered",
  /** The agent may or may not have acted on it. */
  "ambiguous",
  "throttled",
  /** No token could be had, or a fresh one was refused with 401. */
  "unauthenticated",
  "forbidden",
  /** 404: nothing answers at the agent's URL. */
  "not_found",
  "task_not_found",
  "unsupported",
  /** The agent answered the call with an error of its own. */
  "agent_error",
  /** The answer is not one of A2A, as a proxy's page or a redirect is. */
  "not_a2a",
  /** The answer is JSON, and breaks the rules of A2A. */
  "protocol",
  "too_large",
] as const;
export type A2aFailureKind = (typeof A2A_FAILURES)[number];

export class A2aFailure extends Error {
  readonly kind: A2aFailureKind;
  readonly retryAfterMs: number | undefined;

  constructor(kind: A2aFailureKind, retryAfterMs?: number) {
    super(`the call to the agent failed: ${kind}`);
    this.name = "A2aFailure";
    this.kind = kind;
    this.retryAfterMs = retryAfterMs;
  }
}

/** Failures before a connection stood: no byte of the request can have been read. */
const BEFORE_CONNECTION = new Set([
  "ECONNREFUSED",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "EADDRNOTAVAIL",
  "UND_ERR_CONNECT_TIMEOUT",
  NOT_PUBLIC_CODE,
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
  "CERT_HAS_EXPIRED",
  "CERT_NOT_YET_VALID",
]);

/** JSON-RPC "Internal error": the agent broke while it worked, as HTTP 500 does. */
const INTERNAL_ERROR = -32_603;

const BY_REASON: Readonly<Record<string, A2aFailureKind>> = {
  TASK_NOT_FOUND: "task_not_found",
  UNSUPPORTED_OPERATION: "unsupported",
};

export type ExchangeFacts = Pick<Exchange, "status" | "retryAfter" | "fault" | "networkCode">;

/** @param error what the SDK threw; only its class and codes are used */
export function classify(error: unknown, facts: ExchangeFacts, now: number): A2aFailure {
  if (error instanceof A2aFailure) return error;
  return new A2aFailure(kindOf(error, facts), retryAfterMs(facts.retryAfter, now));
}

function kindOf(error: unknown, facts: ExchangeFacts): A2aFailureKind {
  const { status, fault } = facts;
  if (fault === "too_large") return "too_large";
  if (status === undefined) {
    // Nothing was sent: the SDK knows no such operation in this version of the protocol.
    if (error instanceof A2AError) return "unsupported";
    return isBeforeConnection(facts.networkCode ?? "") ? "not_delivered" : "ambiguous";
  }
  // Headers came, and nothing that says what became of the request.
  if (error instanceof TimeUp) return "ambiguous";
  if (status === 401) return "unauthenticated";
  if (status === 403) return "forbidden";
  if (status === 429) return "throttled";
  // A 503 with a Retry-After comes from a server that did not start the work.
  if (status === 503) return facts.retryAfter === undefined ? "ambiguous" : "not_delivered";
  if (status === 408 || status === 502 || status === 504) return "ambiguous";
  if (status >= 300 && status < 400) return "not_a2a";
  if (status < 300 && fault === "garbage") return "not_a2a";
  if (fault === "broken") return "ambiguous";

  const said = saidByAgent(error);
  if (said !== undefined) return said;
  // Only a stream that breaks off carries an error object without a reason after a good status.
  if (status < 300 && error instanceof A2AError) return "ambiguous";
  if (status === 404 || status === 410) return "not_found";
  if (status === 405 || status === 501) return "unsupported";
  if (status >= 500) return "ambiguous";
  return fault === "garbage" ? "not_a2a" : "protocol";
}

function isBeforeConnection(code: string): boolean {
  return BEFORE_CONNECTION.has(code) || code.startsWith("ERR_TLS_") || code.startsWith("ERR_SSL_");
}

/** The kind of an error that the agent put into an A2A error object; undefined when there was none. */
function saidByAgent(error: unknown): A2aFailureKind | undefined {
  const own = error instanceof Error && error.cause instanceof A2AError ? error.cause : error;
  if (!(own instanceof A2AError)) return undefined;
  const code = (own as { envelopeCode?: unknown }).envelopeCode;
  if (code === INTERNAL_ERROR) return "ambiguous";
  const byReason = BY_REASON[own.reason];
  if (byReason !== undefined) return byReason;
  // The HTTP+JSON transport makes an A2AError of every refusal; one without a reason is its status alone.
  if (code === undefined && own.name === "A2AError") return undefined;
  // -32700 … -32600 and the A2A codes: the two sides do not speak the same protocol.
  if (own.name !== "A2AError" && own.name !== "JsonRpcTransportError") return "protocol";
  return typeof code === "number" && code <= -32_600 && code >= -32_700 ? "protocol" : "agent_error";
}
