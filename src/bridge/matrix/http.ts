// One JSON request to the homeserver's client-server API as the appservice, and its classified outcome.
// Invariants: no redirect is followed (the token goes to the configured URL only); the whole exchange has
// one deadline; a response body is read up to a bound; neither body nor token reaches a log or an error; what the
// homeserver waits for other servers with takes no connection from anything else.
import { lookup } from "node:dns";
import { setImmediate } from "node:timers/promises";
import { type Agent, request } from "undici";
import * as z from "zod";
import type { Clock } from "../../domain/clock.ts";
import type { GhostMxid } from "../../domain/identifiers.ts";
import { measureJson, parseUntrustedJson } from "../../domain/strict-json.ts";
import { Serial } from "../../runtime/concurrency.ts";
import { type Body, httpAgent, readBounded, readBoundedBytes } from "../../runtime/http.ts";
import { lookupBy } from "../../runtime/name-lookups.ts";
import { type PruneBounds, readPruned } from "./read-pruned-json.ts";
import { classifyFailure, type Outcome, ok, retry } from "./request-result.ts";

const RESPONSE_BYTES_MAX = 8 * 1024 * 1024;
/** Lists, objects and members, which cost far more time than their bytes: other servers write parts of some answers. */
export const RESPONSE_VALUES_MAX = 131_072;
/** What is longer is taken in one after another, each in a turn of its own: all that comes at once takes seconds, and much memory. */
const LONG = 65_536;
/** With these the homeserver waits for other servers, which may never answer. */
const FEDERATED: ReadonlySet<string> = new Set(["join", "leave", "keys_query", "keys_claim", "download"]);
export const NO_VALUE = z.unknown().transform(() => undefined);

export interface GhostActor {
  readonly ghost: GhostMxid;
  readonly deviceId: string;
  /** Ends a request in flight; once it has aborted none is begun. */
  readonly signal?: AbortSignal | undefined;
}

type Method = "GET" | "PUT" | "POST" | "DELETE";

export interface ApiCall<Schema extends z.ZodType> {
  readonly base?: "client" | "client/v1" | "client/v3" | "media/v3";
  /** Without the undefined ones. */
  readonly query?: Readonly<Record<string, string | readonly string[] | undefined>>;
  readonly body?: unknown;
  readonly bytes?: { readonly mediaType: string; readonly content: Uint8Array };
  readonly as?: (Pick<GhostActor, "ghost" | "signal"> & { readonly deviceId?: string }) | undefined;
  /** Without one the answer has no value. */
  readonly schema?: Schema;
  /** The answer is no JSON but a file: the schema gets its bytes, or undefined when it is longer. */
  readonly fileBytesMax?: number;
  /** Instead of the bounds of every answer. */
  readonly bytesMax?: number;
  readonly valuesMax?: number;
  /** Instead of the bounds of every answer: too large objects of its lists are left out. */
  readonly thin?: PruneBounds;
  readonly timeoutMs?: number;
}

export interface HomeserverOptions {
  readonly url: string;
  readonly asToken: string;
  readonly requestTimeoutMs: number;
  readonly clock: Clock;
  /** Told of a user whose keys alone are longer than what is read of an answer. */
  readonly onKeysTooLarge?: (user: string) => void;
  readonly observe?: (operation: string, outcome: Outcome<unknown>["kind"], ms: number) => void;
}

/** Of a body that is long the rest is read in its turn. */
function heldBack(body: Body, turn: () => Promise<void>): Body {
  async function* read() {
    let length = 0;
    for await (const chunk of body) {
      length += chunk.length;
      if (length > LONG) await turn();
      yield chunk;
    }
  }
  return Object.assign(read(), { destroy: () => body.destroy() });
}

export class HomeserverHttp {
  readonly #options: HomeserverOptions;
  readonly #base: string;
  readonly #agent: Agent;
  readonly #federated: Agent;
  readonly #long = new Serial();

  constructor(options: HomeserverOptions) {
    this.#options = options;
    this.#base = options.url.replace(/\/+$/, "");
    // The homeserver's name waits for none of an agent's.
    const connect = { lookup: lookupBy(lookup) };
    this.#agent = httpAgent({ connections: 32, keepAliveTimeout: 30_000, connect });
    // Their number is bounded by those who make such requests.
    this.#federated = httpAgent({ keepAliveTimeout: 30_000, connect });
  }

  async request<Schema extends z.ZodType = z.ZodUndefined>(
    operation: string,
    method: Method,
    path: readonly string[],
    call: ApiCall<Schema> = {},
  ): Promise<Outcome<z.output<Schema>>> {
    if (call.as?.signal?.aborted === true) return retry("stopped");
    const { clock, observe } = this.#options;
    const startedAt = clock.now();
    const dispatcher = FEDERATED.has(operation) ? this.#federated : this.#agent;
    const outcome = await this.#exchange(method, this.#urlOf(path, call), call, dispatcher);
    observe?.(operation, outcome.kind, clock.now() - startedAt);
    return outcome;
  }

  async close(): Promise<void> {
    await Promise.all([this.#agent.destroy(), this.#federated.destroy()]);
  }

  async #exchange<Schema extends z.ZodType>(
    method: Method,
    url: string,
    call: ApiCall<Schema>,
    dispatcher: Agent,
  ) {
    const deadline = AbortSignal.timeout(call.timeoutMs ?? this.#options.requestTimeoutMs);
    // The caller's signal outlives many requests, so each removes its listener when it ends.
    const stopped = new AbortController();
    const stop = () => stopped.abort();
    call.as?.signal?.addEventListener("abort", stop, { once: true });
    const signal = AbortSignal.any([deadline, stopped.signal]);
    const ended = Promise.withResolvers<void>();
    let begun: Promise<void> | undefined;
    const turn = async () => {
      begun ??= this.#turn(ended.promise, signal);
      await begun;
      signal.throwIfAborted();
    };
    try {
      const response = await request(url, {
        method,
        dispatcher,
        signal,
        headers: {
          authorization: `Bearer ${this.#options.asToken}`,
          accept: call.fileBytesMax !== undefined ? "*/*" : "application/json",
          ...(call.body !== undefined && { "content-type": "application/json" }),
          ...(call.bytes !== undefined && { "content-type": call.bytes.mediaType }),
        },
        body: call.bytes?.content ?? (call.body === undefined ? null : JSON.stringify(call.body)),
      });
      const isOk = response.statusCode >= 200 && response.statusCode <= 299;
      if (isOk && call.fileBytesMax !== undefined) {
        return outcomeOf(call, await readBoundedBytes(response.body, call.fileBytesMax));
      }
      const text =
        call.thin === undefined
          ? await readBounded(heldBack(response.body, turn), call.bytesMax ?? RESPONSE_BYTES_MAX)
          : await readPruned(response.body, call.thin);
      const valuesMax = call.valuesMax ?? (call.thin === undefined ? RESPONSE_VALUES_MAX : undefined);
      if (text !== undefined && text.length > LONG) await turn();
      if (text !== undefined && valuesMax !== undefined && measureJson(text).values > valuesMax)
        return retry("too_large");
      const body = parseUntrustedJson(text ?? "");
      if (!isOk) {
        const [header] = [response.headers["retry-after"]].flat();
        return classifyFailure(response.statusCode, body, header, this.#options.clock.now());
      }
      return text === undefined ? retry("too_large") : outcomeOf(call, body);
    } catch {
      return retry(stopped.signal.aborted ? "stopped" : deadline.aborted ? "timeout" : "network");
    } finally {
      ended.resolve();
      call.as?.signal?.removeEventListener("abort", stop);
    }
  }

  /** Resolves when no other long answer is taken in, and none is until `ended`; or when `signal` aborts. */
  #turn(ended: Promise<void>, signal: AbortSignal): Promise<void> {
    const begun = Promise.withResolvers<void>();
    signal.addEventListener("abort", () => begun.resolve(), { once: true });
    void this.#long.run(async () => {
      await setImmediate();
      begun.resolve();
      await ended;
    });
    return begun.promise;
  }

  #urlOf(path: readonly string[], { base = "client/v3", ...call }: ApiCall<z.ZodType>): string {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(call.query ?? {})) {
      for (const each of [value ?? []].flat()) query.append(name, each);
    }
    if (call.as !== undefined) {
      query.set("user_id", call.as.ghost);
      if (call.as.deviceId !== undefined) query.set("device_id", call.as.deviceId);
    }
    const escaped = path.map((segment) => encodeURIComponent(segment)).join("/");
    return `${this.#base}/_matrix/${base}/${escaped}${query.size === 0 ? "" : `?${query}`}`;
  }
}

function outcomeOf<Schema extends z.ZodType>(call: ApiCall<Schema>, answer: unknown) {
  const parsed = (call.schema ?? NO_VALUE).safeParse(answer);
  return parsed.success ? ok(parsed.data as z.output<Schema>) : retry("malformed");
}
