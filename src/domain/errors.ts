// Errors an operator can meet. Invariant: a closed set of stable codes; each error names its hint.

export type ErrorCode =
  | "config_invalid"
  | "config_unreadable"
  | "secret_unavailable"
  | "database_unavailable"
  | "lease_lost"
  | "homeserver_refused"
  | "homeserver_unavailable"
  | "card_rejected"
  | "state_unreadable"
  | "unsafe_acl"
  | "record_refused"
  | "token_refused"
  | "agent_unavailable"
  | "gateway_refused"
  | "issuer_unavailable"
  | "device_unavailable"
  | "repository_unusable"
  | "head_refused"
  | "offboarding_blocked"
  | "guard_refused"
  | "usage"
  | "not_running"
  | "program_failed"
  | "internal";

/** What may be logged of any error: its code, or else its name. Its message can quote content, or a row of the database. */
export function errorName(error: unknown): string {
  const { code, name } = (error ?? {}) as { readonly code?: unknown; readonly name?: unknown };
  const isName = (one: unknown): one is string => typeof one === "string" && /^\w{1,40}$/.test(one);
  return [code, name].find(isName) ?? "unknown";
}

export function isLeaseLost(error: unknown): boolean {
  return error instanceof DrawbridgeError && error.code === "lease_lost";
}

/** For `catch`: undefined for an operator's error, of this code if one is named; anything else is thrown on. */
export function undefinedFor(code?: ErrorCode): (error: unknown) => undefined {
  return (error) => {
    if (error instanceof DrawbridgeError && (code === undefined || error.code === code)) return undefined;
    throw error;
  };
}

export class DrawbridgeError extends Error {
  readonly code: ErrorCode;
  readonly hint: string | undefined;

  constructor(code: ErrorCode, message: string, { hint, cause }: { hint?: string; cause?: unknown } = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "DrawbridgeError";
    this.code = code;
    this.hint = hint;
  }
}
