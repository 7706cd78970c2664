// One JSON request to a homeserver of ours, as the user that a token belongs to.
// Invariants: 429 is obeyed; no redirect is followed, so a token goes to the configured address only; each
// exchange has a deadline; what cannot be repeated safely is not repeated; neither body nor token reaches an
// error.
import { Agent } from "undici";
import type { z } from "zod";
import type { Clock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { backoffMs } from "../../runtime/backoff.ts";
import { membersOf, requestJson, retryAfterMs } from "../../runtime/http.ts";

interface ApiOptions {
  /** Client-server API, without a final slash. */
  readonly url: string;
  readonly clock: Clock;
  /** One exchange, milliseconds. */
  readonly timeoutMs?: number;
}

export interface ApiCall {
  readonly method: "GET" | "PUT" | "POST" | "DELETE";
  /** Segments of the path, escaped here; the first is `_matrix` or `_synapse`. */
  readonly path: readonly string[];
  readonly query?: Readonly<Record<string, string>>;
  readonly body?: unknown;
  /** A short fixed name for errors. */
  readonly operation: string;
}

export interface ApiAnswer {
  readonly status: number;
  readonly errcode: string | undefined;
  /** The body if it was a JSON object, else empty. */
  readonly body: Readonly<Record<string, unknown>>;
}

const TIMEOUT_MS = 60_000;
const ATTEMPTS_MAX = 4;
const BACKOFF = { firstMs: 250, maxMs: 4_000 };
/** A homeserver that limits us for longer than this altogether is not waited for in one pass. */
const LIMITED_MAX_MS = 600_000;
const LIMITED_STEP_MIN_MS = 50;

export class HomeserverApi {
  readonly #options: ApiOptions;
  readonly #agent = new Agent({ connections: 32, keepAliveTimeout: 30_000 });

  constructor(options: ApiOptions) {
    this.#options = options;
  }

  /**
   * Makes one request, repeated as far as that is safe.
   * @returns the answer, whatever its status
   * @throws DrawbridgeError `homeserver_unavailable` when none came, or only 5xx
   */
  async request(token: string, call: ApiCall): Promise<ApiAnswer> {
    const { clock } = this.#options;
    let limitedMs = 0;
    for (let failures = 0; ; ) {
      const answer = await this.#exchange(token, call);
      if (answer !== undefined && answer.status === 429 && limitedMs < LIMITED_MAX_MS) {
        const requestedMs = Math.max(answer.retryAfterMs ?? 1_000, LIMITED_STEP_MIN_MS);
        const waitMs = Math.min(requestedMs, LIMITED_MAX_MS - limitedMs);
        limitedMs += waitMs;
        await clock.sleep(waitMs);
        continue;
      }
      if (answer !== undefined && answer.status < 500) return answer;
      failures += 1;
      if (call.method === "POST" || failures >= ATTEMPTS_MAX) throw unavailable(call, answer?.status);
      await clock.sleep(backoffMs(BACKOFF, failures - 1));
    }
  }

  /** Closes the connections, requests in flight included. */
  async close(): Promise<void> {
    await this.#agent.destroy();
  }

  async #exchange(
    token: string,
    call: ApiCall,
  ): Promise<(ApiAnswer & { readonly retryAfterMs: number | undefined }) | undefined> {
    try {
      const { method, body } = call;
      const { timeoutMs = TIMEOUT_MS, clock } = this.#options;
      const options = { method, token, body, timeoutMs, dispatcher: this.#agent };
      const response = await requestJson(this.#urlOf(call), options);
      const answer = matrixAnswer(response);
      const { retry_after_ms: requested } = answer.body;
      const waitMs =
        retryAfterMs(response.headers["retry-after"], clock.now()) ??
        (typeof requested === "number" ? requested : undefined);
      return { ...answer, retryAfterMs: waitMs };
    } catch {
      return undefined;
    }
  }

  #urlOf(call: ApiCall): string {
    const path = call.path.map((segment) => encodeURIComponent(segment)).join("/");
    const query = String(new URLSearchParams(call.query ?? {}));
    return `${this.#options.url.replace(/\/+$/, "")}/${path}${query === "" ? "" : `?${query}`}`;
  }
}

/** An answer as Matrix's APIs give it. */
export function matrixAnswer({
  status,
  body: value,
}: {
  readonly status: number;
  readonly body: unknown;
}): ApiAnswer {
  const body = membersOf(value);
  const { errcode } = body;
  return { status, errcode: typeof errcode === "string" ? errcode : undefined, body };
}

/**
 * The body of a success.
 * @throws DrawbridgeError `homeserver_refused` for anything else
 */
export function expectSuccess(answer: ApiAnswer, operation: string): Readonly<Record<string, unknown>> {
  if (answer.status >= 200 && answer.status < 300) return answer.body;
  throw refused(operation, answer);
}

export function refused(operation: string, answer: ApiAnswer): DrawbridgeError {
  const code = /^M_[A-Z0-9_]{1,64}$/.test(answer.errcode ?? "") ? ` ${answer.errcode}` : "";
  return new DrawbridgeError(
    "homeserver_refused",
    `the homeserver refused ${operation}: HTTP ${answer.status}${code}`,
    {
      hint:
        answer.status === 401 || answer.status === 403
          ? "Check that the operator's token is valid and belongs to a server administrator."
          : "Read the homeserver's log at this time.",
    },
  );
}

type Query = Readonly<Record<string, string>>;

/** The homeserver as the user that one token belongs to. */
export class HomeserverAccess {
  readonly #api: HomeserverApi;
  readonly #token: string;

  constructor(api: HomeserverApi, token: string) {
    this.#api = api;
    this.#token = token;
  }

  /** The same homeserver as another user. */
  as(token: string): HomeserverAccess {
    return new HomeserverAccess(this.#api, token);
  }

  /** The answer, whatever its status. @throws DrawbridgeError `homeserver_unavailable` */
  call(
    method: ApiCall["method"],
    operation: string,
    path: readonly string[],
    more: Pick<ApiCall, "query" | "body"> = {},
  ): Promise<ApiAnswer> {
    return this.#api.request(this.#token, { method, operation, path, ...more });
  }

  /** The body of a success. @throws DrawbridgeError `homeserver_refused`, also for another form */
  async read<Schema extends z.ZodType>(
    schema: Schema,
    operation: string,
    path: readonly string[],
    query: Query = {},
  ): Promise<z.output<Schema>> {
    return parseAnswer(schema, await this.call("GET", operation, path, { query }), operation);
  }

  /** The same; undefined for what does not exist. */
  async find<Schema extends z.ZodType>(
    schema: Schema,
    operation: string,
    path: readonly string[],
    query: Query = {},
  ): Promise<z.output<Schema> | undefined> {
    const answer = await this.call("GET", operation, path, { query });
    return answer.status === 404 ? undefined : parseAnswer(schema, answer, operation);
  }
}

function parseAnswer<Schema extends z.ZodType>(schema: Schema, answer: ApiAnswer, operation: string) {
  const parsed = schema.safeParse(expectSuccess(answer, operation));
  if (parsed.success) return parsed.data;
  throw refused(`${operation} in the form that is documented`, { status: 200, errcode: undefined, body: {} });
}

function unavailable(call: ApiCall, status: number | undefined): DrawbridgeError {
  return new DrawbridgeError(
    "homeserver_unavailable",
    `the homeserver did not answer ${call.operation}${status === undefined ? "" : `: HTTP ${status}`}`,
    { hint: "Start the homeserver, or correct its address in the configuration; the work is then resumed." },
  );
}

// One request to a resource of the homeserver that lies outside the admin API, such as the border module's.
// Invariants: the token goes to the configured homeserver alone; the exchange has a deadline and its body a bound.

const RESOURCE_TIMEOUT_MS = 10_000;
const BODY_BYTES_MAX = 16 * 1024 * 1024;

interface ResourceCall {
  readonly method: "GET" | "POST";
  /** From the homeserver's root, its query included. */
  readonly path: string;
  readonly token: string;
  readonly body?: Readonly<Record<string, unknown>> | undefined;
}

/** Status and JSON body; undefined when no answer came. */
export async function callResource(
  homeserverUrl: string,
  { method, path, token, body }: ResourceCall,
): Promise<{ readonly status: number; readonly body: unknown } | undefined> {
  try {
    return await requestJson(`${homeserverUrl.replace(/\/+$/, "")}${path}`, {
      ...{ method, token, body, timeoutMs: RESOURCE_TIMEOUT_MS, bytesMax: BODY_BYTES_MAX },
    });
  } catch {
    return undefined;
  }
}
