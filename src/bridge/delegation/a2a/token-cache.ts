// Access tokens by the OAuth 2.0 client credentials grant (RFC 6749, sections 2.3.1 and 4.4; resource
// indicators, RFC 8707). Invariants: a token is used until 30 s before it expires; one request at a time
// for each (endpoint, client, resource); the secret is read anew for each request, so that a rotated one is
// taken up; neither secret nor token nor a body of the issuer appears in an error.
import type { Clock } from "../../../domain/clock.ts";
import { DrawbridgeError } from "../../../domain/errors.ts";
import type { AgentEntry } from "../../../rendered-files/agents-file.ts";
import { retryAfterMs } from "../../../runtime/http.ts";
import { readRegistrySecret } from "../../../runtime/secrets.ts";
import { boundedBody } from "./body-guard.ts";
import type { AgentHttp } from "./http-exchange.ts";
import { within } from "./time-limit.ts";

export type Credentials = NonNullable<AgentEntry["credentials"]>;

const EXPIRY_MARGIN_MS = 30_000;
/** RFC 6749 only recommends `expires_in`; a token without it is taken to live this long. */
const LIFETIME_MS_UNSAID = 60_000;
const REQUEST_TIMEOUT_MS = 10_000;
const RESPONSE_BYTES_MAX = 64 * 1024;
/** RFC 6750, section 2.1, `b64token`; anything else could not stand in a header. */
const TOKEN_FORM = /^[A-Za-z0-9._~+/-]+=*$/;

/** Why no token could be had: `refused` by the issuer, not answered, or its secret is not readable. */
export type TokenFailureCode = "token_refused" | "token_unavailable" | "secret_unavailable";

export class TokenFailure extends Error {
  readonly code: TokenFailureCode;
  readonly retryAfterMs: number | undefined;

  constructor(code: TokenFailureCode, retryAfterMs?: number) {
    super(`no access token: ${code}`);
    this.name = "TokenFailure";
    this.code = code;
    this.retryAfterMs = retryAfterMs;
  }
}

export interface AccessToken {
  readonly value: string;
  /** True when it was just requested from the issuer. */
  readonly fetched: boolean;
}

export interface TokenSource {
  /**
   * A token for these credentials.
   * @param rejected a token that the agent answered with 401: not given out again
   * @throws TokenFailure
   */
  token(credentials: Credentials, rejected?: string): Promise<AccessToken>;
}

export interface TokenOptions {
  readonly http: AgentHttp;
  readonly clock: Clock;
  /** Where relative secret files start from. */
  readonly baseDirectory: string;
  readonly observe?: ((outcome: "ok" | TokenFailureCode) => void) | undefined;
}

interface Cached {
  readonly value: string;
  readonly usableUntil: number;
}

export function createTokenSource(options: TokenOptions): TokenSource {
  const cache = new Map<string, Cached>();
  const inFlight = new Map<string, Promise<Cached>>();

  const fetchNew = async (key: string, credentials: Credentials): Promise<Cached> => {
    try {
      const token = await requestToken(options, credentials);
      cache.set(key, token);
      options.observe?.("ok");
      return token;
    } catch (error) {
      const failure = error instanceof TokenFailure ? error : new TokenFailure("token_unavailable");
      options.observe?.(failure.code);
      throw failure;
    } finally {
      inFlight.delete(key);
    }
  };

  return {
    async token(credentials, rejected) {
      const { tokenEndpoint, clientId, resource, scope } = credentials;
      const key = JSON.stringify([tokenEndpoint, clientId, resource ?? null, scope ?? null]);
      const cached = cache.get(key);
      if (cached !== undefined && cached.value !== rejected && options.clock.now() < cached.usableUntil) {
        return { value: cached.value, fetched: false };
      }
      const fetching = inFlight.get(key) ?? fetchNew(key, credentials);
      inFlight.set(key, fetching);
      return { value: (await fetching).value, fetched: true };
    },
  };
}

async function requestToken(options: TokenOptions, credentials: Credentials): Promise<Cached> {
  let secret: string;
  try {
    secret = readRegistrySecret(credentials.clientSecret, options.baseDirectory);
  } catch (error) {
    if (error instanceof DrawbridgeError) throw new TokenFailure("secret_unavailable");
    throw error;
  }
  const form = new URLSearchParams({ grant_type: "client_credentials" });
  if (credentials.resource !== undefined) form.set("resource", credentials.resource);
  if (credentials.scope !== undefined) form.set("scope", credentials.scope);
  const basic = `${formEncode(credentials.clientId)}:${formEncode(secret)}`;

  const requestedAt = options.clock.now();
  const answer = await within(options.clock, REQUEST_TIMEOUT_MS, undefined, async (signal) => {
    const response = await options.http.fetch(credentials.tokenEndpoint, {
      method: "POST",
      headers: {
        authorization: `Basic ${Buffer.from(basic, "utf8").toString("base64")}`,
        "content-type": "application/x-www-form-urlencoded",
        accept: "application/json",
      },
      body: form.toString(),
      signal,
      // The operator names the issuer, and no card does.
      mayBePrivate: true,
    });
    if (response.status !== 200) {
      await response.body?.cancel().catch(() => undefined);
      const refused = response.status >= 400 && response.status < 500 && response.status !== 429;
      throw new TokenFailure(
        refused ? "token_refused" : "token_unavailable",
        retryAfterMs(response.headers.get("retry-after") ?? undefined, options.clock.now()),
      );
    }
    if (response.body === null) throw new TokenFailure("token_unavailable");
    return new Response(boundedBody(response.body, RESPONSE_BYTES_MAX, () => undefined)).json();
  });
  return parseAnswer(answer, requestedAt);
}

function parseAnswer(answer: unknown, requestedAt: number): Cached {
  const { access_token, token_type, expires_in } = (answer ?? {}) as Record<string, unknown>;
  const usable =
    typeof access_token === "string" &&
    TOKEN_FORM.test(access_token) &&
    typeof token_type === "string" &&
    token_type.toLowerCase() === "bearer";
  if (!usable) throw new TokenFailure("token_unavailable");
  const seconds = Number(expires_in);
  const lifetimeMs = Number.isFinite(seconds) && seconds > 0 ? seconds * 1_000 : LIFETIME_MS_UNSAID;
  // A token that lives shorter than twice the margin is used for half its life.
  const usableMs = Math.max(lifetimeMs - EXPIRY_MARGIN_MS, lifetimeMs / 2);
  return { value: access_token, usableUntil: requestedAt + Math.min(usableMs, lifetimeMs) };
}

/** RFC 6749, appendix B: both halves of the Basic credentials are form-encoded first. */
function formEncode(text: string): string {
  return new URLSearchParams({ v: text }).toString().slice(2);
}
