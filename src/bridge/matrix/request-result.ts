// What a request to the homeserver can come to (Matrix client-server API, "Standard error response", "Rate limiting").
// Invariants: `refused` means that the homeserver understood the request and will not do it, so repeating it changes
// nothing; everything else that is not `ok` is worth repeating later; no body survives.
import * as z from "zod";
import { retryAfterMs } from "../../runtime/http.ts";

/** The least wait that makes sense for a cause. */
const LEAST_WAIT_MS = {
  rate_limited: 1_000,
  server_error: 1_000,
  network: 1_000,
  timeout: 1_000,
  /** No answer of the API: a proxy's page, a wrong URL. */
  malformed: 30_000,
  too_large: 30_000,
  unauthorized: 30_000,
  ghost_refused: 60_000,
  /** The ghost's machine is not available now, or its device is stopped. */
  device_unavailable: 1_000,
  device_elsewhere: 250,
  /** The ghost is in the room, and the homeserver does not let it read there. */
  room_hidden: 60_000,
  stopped: 0,
};
export type RetryCause = keyof typeof LEAST_WAIT_MS;

export interface Retry {
  readonly kind: "retry";
  readonly cause: RetryCause;
  /** At least what makes sense for the cause, and what the homeserver asked for. */
  readonly afterMs: number;
  readonly errcode: string | undefined;
}

export interface Refused {
  readonly kind: "refused";
  readonly status: number;
  readonly errcode: string;
}

export type Ok<T> = { readonly kind: "ok"; readonly value: T };

export type Failure = Retry | Refused;
export type Outcome<T> = Ok<T> | Failure;

export const ok = <T>(value: T): Ok<T> => ({ kind: "ok", value });
export const DONE = ok(undefined);
export const refused = (status: number, errcode: string): Refused => ({ kind: "refused", status, errcode });

/** The Matrix error code, or the cause where the homeserver named none. */
export function reasonOf(failure: Failure): string {
  return failure.kind === "refused" ? failure.errcode : (failure.errcode ?? failure.cause);
}

export function mapValue<T, U>(outcome: Outcome<T>, map: (value: T) => U): Outcome<U> {
  return outcome.kind === "ok" ? ok(map(outcome.value)) : outcome;
}

export function unlessRefused<T>(outcome: Outcome<T>, errcode: string): Outcome<T | undefined> {
  return outcome.kind === "refused" && outcome.errcode === errcode ? DONE : outcome;
}

export const RETRY_AFTER_MS_MAX = 5 * 60_000;

const ErrorBody = z.object({
  errcode: z.string().regex(/^[A-Za-z0-9._-]{1,100}$/),
  retry_after_ms: z.number().nonnegative().optional().catch(undefined),
});

export function retry(cause: RetryCause, askedMs?: number, errcode?: string): Retry {
  const leastMs = LEAST_WAIT_MS[cause];
  const afterMs = Math.min(RETRY_AFTER_MS_MAX, Math.max(leastMs, askedMs ?? leastMs));
  return { kind: "retry", cause, afterMs: Math.ceil(afterMs), errcode };
}

/** Classifies an answer that is not a success. @param body undefined when it was no JSON */
export function classifyFailure(status: number, body: unknown, retryAfter: string | undefined, now: number) {
  const { data } = ErrorBody.safeParse(body);
  const errcode = data?.errcode;
  const askedMs = data?.retry_after_ms ?? retryAfterMs(retryAfter, now);
  if (status === 429 || errcode === "M_LIMIT_EXCEEDED") return retry("rate_limited", askedMs, errcode);
  if (status >= 500) return retry("server_error", askedMs, errcode);
  if (status === 401) return retry("unauthorized", undefined, errcode);
  // Anything below 400, and a refusal without an error code or of the path itself, is not the API speaking.
  if (status < 400 || errcode === undefined || errcode === "M_UNRECOGNIZED") {
    return retry("malformed", undefined, errcode);
  }
  return refused(status, errcode);
}
