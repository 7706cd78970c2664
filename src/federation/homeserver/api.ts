// JSON requests to a homeserver of ours, as the user that a token belongs to.
// Invariants: 429 is obeyed; a token goes to the configured address only; each exchange has a deadline; what cannot be
// repeated safely is not repeated; neither body nor token reaches an error.
import type { Agent } from "undici";
import type * as z from "zod";
import type { Clock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { membersOf } from "../../domain/json.ts";
import { backoffMs } from "../../runtime/backoff.ts";
import { httpAgent, type JsonRequest, requestJson, retryAfterMs } from "../../runtime/http.ts";

/** The body is empty where the answer's was no JSON object. */
export type MatrixAnswer = Readonly<ReturnType<typeof matrixAnswer>>;
export type Query = Readonly<Record<string, string>>;
type Method = "GET" | "PUT" | "POST" | "DELETE";
type Path = readonly string[];
type Request = {
  readonly method?: Method;
  readonly query?: Query;
  readonly body?: unknown;
  /** Milliseconds for one exchange; one that takes longer than a time named here is not repeated. */
  readonly timeoutMs?: number | undefined;
  readonly limitedMaxMs?: number | undefined;
};

const TIMEOUT_MS = 60_000;
const ATTEMPTS_MAX = 4;
const BACKOFF = { firstMs: 250, maxMs: 4_000 };
/** A homeserver that limits us for longer than this altogether is not waited for in one pass. */
const LIMITED_MAX_MS = 600_000;
const LIMITED_STEP_MIN_MS = 50;
/** Whoever waits longer is told why. */
const LIMITED_UNSAID_MS = 2_000;

export class HomeserverAccess {
  readonly #server: { readonly url: string; readonly token: string; readonly dispatcher: Agent };
  readonly #clock: Clock;
  readonly #onLimited: (() => void) | undefined;

  /** @param onLimited called before each wait that makes a request wait for long because the homeserver limits it */
  constructor(url: string, token: string, clock: Clock, onLimited?: () => void, agent?: Agent) {
    const dispatcher = agent ?? httpAgent({ connections: 32, keepAliveTimeout: 30_000 });
    this.#server = { url, token, dispatcher };
    this.#clock = clock;
    this.#onLimited = onLimited;
  }

  /** The same homeserver as another user, over the same connections. */
  as(token: string): HomeserverAccess {
    const { url, dispatcher } = this.#server;
    return new HomeserverAccess(url, token, this.#clock, this.#onLimited, dispatcher);
  }

  /** Any answer below 500; segments of `path` are escaped here. @throws DrawbridgeError `homeserver_unavailable` */
  async call(method: Method, operation: string, path: Path, request: Request = {}): Promise<MatrixAnswer> {
    const { query = {}, body, timeoutMs, limitedMaxMs = LIMITED_MAX_MS } = request;
    let limitedMs = 0;
    for (let failed = 0; ; ) {
      const begun = this.#clock.now();
      const answer = await this.#exchange(method, path, query, body, timeoutMs ?? TIMEOUT_MS);
      if (answer?.status === 429 && limitedMs < limitedMaxMs) {
        const requestedMs = Math.max(answer.retryAfterMs ?? 1_000, LIMITED_STEP_MIN_MS);
        const waitMs = Math.min(requestedMs, limitedMaxMs - limitedMs);
        limitedMs += waitMs;
        if (limitedMs >= LIMITED_UNSAID_MS) this.#onLimited?.();
        await this.#clock.sleep(waitMs);
        continue;
      }
      if (answer !== undefined && answer.status < 500) return answer;
      failed += 1;
      const isLate = timeoutMs !== undefined && this.#clock.now() - begun >= timeoutMs;
      if (method === "POST" || isLate || failed >= ATTEMPTS_MAX) throw unavailable(operation, answer?.status);
      await this.#clock.sleep(backoffMs(BACKOFF, failed - 1));
    }
  }

  /** Undefined also for a path that cannot be escaped: a homeserver may name anything. */
  async #exchange(method: Method, path: Path, query: Query, body: unknown, timeoutMs: number) {
    const { url, ...server } = this.#server;
    try {
      const parameters = String(new URLSearchParams(query));
      const resource = `/${path.map(encodeURIComponent).join("/")}${parameters === "" ? "" : `?${parameters}`}`;
      const response = await requestJson(resourceUrl(url, resource), { ...server, method, body, timeoutMs });
      const answer = matrixAnswer(response);
      const { retry_after_ms: requested } = answer.body;
      const waitMs =
        retryAfterMs(response.headers["retry-after"], this.#clock.now()) ??
        (typeof requested === "number" ? requested : undefined);
      return { ...answer, retryAfterMs: waitMs };
    } catch {
      return undefined;
    }
  }

  /** The body of a success. @throws DrawbridgeError `homeserver_refused`, also for another form */
  async request<Schema extends z.ZodType>(schema: Schema, operation: string, path: Path, call: Request = {}) {
    return parseAnswer(schema, await this.call(call.method ?? "GET", operation, path, call), operation);
  }

  /** The same, of a GET; undefined for what does not exist, which is more than that no such address is known. */
  async find<Schema extends z.ZodType>(schema: Schema, operation: string, path: Path, request: Request = {}) {
    const answer = await this.call("GET", operation, path, request);
    const isAbsent = answer.status === 404 && answer.errcode === "M_NOT_FOUND";
    return isAbsent ? undefined : parseAnswer(schema, answer, operation);
  }

  async close(): Promise<void> {
    await this.#server.dispatcher.destroy();
  }
}

export function resourceUrl(url: string, resource: string): string {
  return `${url.replace(/\/+$/, "")}${resource}`;
}

export function matrixAnswer({ status, body: value }: { status: number; body: unknown }) {
  const body = membersOf(value);
  const { errcode } = body;
  return { status, errcode: typeof errcode === "string" ? errcode : undefined, body };
}

export function expectSuccess(answer: MatrixAnswer, operation: string): MatrixAnswer["body"] {
  if (answer.status >= 200 && answer.status < 300) return answer.body;
  throw refused(operation, answer);
}

export function refused(operation: string, answer: MatrixAnswer): DrawbridgeError {
  const code = /^M_[A-Z0-9_]{1,64}$/.test(answer.errcode ?? "") ? ` ${answer.errcode}` : "";
  const hint =
    answer.status === 401 || answer.status === 403
      ? "Check that the operator's token is valid and belongs to a server administrator."
      : "Read the homeserver's log at this time.";
  const what = `the homeserver refused ${operation}: HTTP ${answer.status}${code}`;
  return new DrawbridgeError("homeserver_refused", what, { hint });
}

/** Whether the homeserver refused one request, and may take others. */
export function isRefusal(error: unknown): error is DrawbridgeError {
  return error instanceof DrawbridgeError && error.code === "homeserver_refused";
}

function parseAnswer<Schema extends z.ZodType>(schema: Schema, answer: MatrixAnswer, operation: string) {
  const parsed = schema.safeParse(expectSuccess(answer, operation));
  if (parsed.success) return parsed.data;
  throw refused(`${operation} in the form that is documented`, { status: 200, errcode: undefined, body: {} });
}

function unavailable(operation: string, status: number | undefined): DrawbridgeError {
  const what = `the homeserver did not answer ${operation}${status === undefined ? "" : `: HTTP ${status}`}`;
  const hint = "Start the homeserver, or correct its address in the configuration; the work is then resumed.";
  return new DrawbridgeError("homeserver_unavailable", what, { hint });
}

const RESOURCE_TIMEOUT_MS = 10_000;
const RESOURCE_BYTES_MAX = 16 * 1024 * 1024;

/** One request, never repeated. @param hints by status @throws DrawbridgeError `homeserver_unavailable`, `homeserver_refused` */
export async function readResource<Schema extends z.ZodType>(
  schema: Schema,
  url: string,
  request: Pick<JsonRequest, "token" | "body">,
  { what, down, hints }: { what: string; down: string; hints: Readonly<Record<number | "other", string>> },
): Promise<z.output<Schema>> {
  const bounds = { timeoutMs: RESOURCE_TIMEOUT_MS, bytesMax: RESOURCE_BYTES_MAX };
  const method = request.body === undefined ? "GET" : "POST";
  const answer = await requestJson(url, { method, ...request, ...bounds }).catch(() => undefined);
  const status = answer === undefined ? "" : `: HTTP ${answer.status}`;
  if (answer === undefined || answer.status >= 500)
    throw new DrawbridgeError("homeserver_unavailable", `${what} did not answer${status}`, { hint: down });
  const parsed = schema.safeParse(answer.body);
  if (answer.status === 200 && parsed.success) return parsed.data;
  const form = answer.status === 200 ? " in an unknown form" : "";
  throw new DrawbridgeError("homeserver_refused", `${what} did not answer as it should${status}${form}`, {
    hint: hints[answer.status] ?? hints.other,
  });
}
