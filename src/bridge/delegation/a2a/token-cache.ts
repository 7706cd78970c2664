// Access tokens by the OAuth 2.0 client credentials grant (RFC 6749, sections 2.3.1 and 4.4; RFC 8707).
// Invariants: a token is used until 30 s before it expires, or for half its life where that is longer; one request at a time
// for each (endpoint, client, resource); the secret is read anew for each request; neither secret nor token nor a body of the
// issuer appears in an error.
import * as z from "zod";
import type { Clock } from "../../../domain/clock.ts";
import { undefinedFor } from "../../../domain/errors.ts";
import type { AgentEntry } from "../../../rendered-files/agents-file.ts";
import { basicAuthorization, requestJson, retryAfterMs } from "../../../runtime/http.ts";
import { readRegistrySecret } from "../../../runtime/secrets.ts";
import { A2aFailure } from "./classify-failure.ts";

export type Credentials = NonNullable<AgentEntry["credentials"]>;

const EXPIRY_MARGIN_MS = 30_000;
/** RFC 6749 only recommends `expires_in`; a token without it is taken to live this long. */
const LIFETIME_MS_UNSAID = 60_000;
const REQUEST_TIMEOUT_MS = 10_000;
const RESPONSE_BYTES_MAX = 64 * 1024;
const TokenAnswer = z.object({
  /** RFC 6750, section 2.1, `b64token`; anything else could not stand in a header. */
  access_token: z.string().regex(/^[A-Za-z0-9._~+/-]+=*$/),
  token_type: z.string().regex(/^bearer$/i),
  expires_in: z.unknown().optional(),
});

/** Why no token could be had: `refused` by the issuer, not answered, or its secret is not readable. It is counted only. */
export type TokenFailureCode = "token_refused" | "token_unavailable" | "secret_unavailable";

interface TokenOptions {
  readonly clock: Clock;
  /** Where relative secret files start from. */
  readonly baseDirectory: string;
  readonly observe?: ((outcome: "ok" | TokenFailureCode) => void) | undefined;
}

type Cached = Awaited<ReturnType<typeof requestToken>>;

export function createTokenSource(options: TokenOptions) {
  const cache = new Map<string, Cached>();
  const inFlight = new Map<string, Promise<Cached>>();

  const fetchNew = async (key: string, credentials: Credentials): Promise<Cached> => {
    try {
      const token = await requestToken(options, credentials);
      cache.set(key, token);
      options.observe?.("ok");
      return token;
    } catch (error) {
      throw error instanceof A2aFailure ? error : failure(options, "token_unavailable");
    } finally {
      inFlight.delete(key);
    }
  };

  return {
    /**
     * A token for these credentials, and whether it was just requested from the issuer.
     * @param rejected a token that the agent answered with 401: not given out again
     * @throws A2aFailure `unauthenticated`
     */
    async token(credentials: Credentials, rejected?: string) {
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

function failure({ observe }: TokenOptions, code: TokenFailureCode, retryAfterMs?: number): A2aFailure {
  observe?.(code);
  return new A2aFailure("unauthenticated", retryAfterMs);
}

async function requestToken(options: TokenOptions, credentials: Credentials) {
  const readSecret = async () => readRegistrySecret(credentials.clientSecret, options.baseDirectory);
  const secret = await readSecret().catch(undefinedFor());
  if (secret === undefined) throw failure(options, "secret_unavailable");
  const form = new URLSearchParams({ grant_type: "client_credentials" });
  if (credentials.resource !== undefined) form.set("resource", credentials.resource);
  if (credentials.scope !== undefined) form.set("scope", credentials.scope);

  const requestedAt = options.clock.now();
  const { status, headers, body } = await requestJson(credentials.tokenEndpoint, {
    method: "POST",
    headers: {
      authorization: basicAuthorization(credentials.clientId, secret),
      "content-type": "application/x-www-form-urlencoded",
    },
    body: form.toString(),
    timeoutMs: REQUEST_TIMEOUT_MS,
    isRefusedByStatus: true,
    bytesMax: RESPONSE_BYTES_MAX,
  });
  if (status !== 200) {
    const isRefused = status >= 400 && status < 500 && status !== 429;
    const waitMs = retryAfterMs(headers["retry-after"], options.clock.now());
    throw failure(options, isRefused ? "token_refused" : "token_unavailable", waitMs);
  }
  const { data } = TokenAnswer.safeParse(body);
  if (data === undefined) throw failure(options, "token_unavailable");
  const seconds = Number(data.expires_in);
  const lifetimeMs = Number.isFinite(seconds) && seconds > 0 ? seconds * 1_000 : LIFETIME_MS_UNSAID;
  // A token that lives shorter than twice the margin is used for half its life.
  const usableMs = Math.max(lifetimeMs - EXPIRY_MARGIN_MS, lifetimeMs / 2);
  return { value: data.access_token, usableUntil: requestedAt + usableMs };
}
