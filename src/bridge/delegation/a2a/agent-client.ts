// Calls to one agent whose card was just verified, by A2A 1.0 over JSON-RPC (section 9) and HTTP+JSON (section 11), or 0.3.
// Invariants: each request carries a token of the agent's own credentials and the protocol's version; a 401 refreshes the
// token once and repeats the request once, if the agent may still be called then; every failure leaves as an A2aFailure, or
// as the caller's own abort reason.
import { type StreamResponse, TaskState } from "@a2a-js/sdk";
import type { RequestOptions, Transport } from "@a2a-js/sdk/client";
import { MESSAGE_ID_IDEMPOTENCY } from "../../../cards/card-fields.ts";
import type { Clock } from "../../../domain/clock.ts";
import { type AgentEntry, mayBePrivate } from "../../../rendered-files/agents-file.ts";
import { chooseInterface, isSoundEvent, openTransport, type PeerCard } from "./choose-interface.ts";
import { A2aFailure, type A2aFailureKind, classify } from "./classify-failure.ts";
import { type AgentHttp, Exchange } from "./http-exchange.ts";
import { type Question, sendRequest, sendResult, streamUpdate, taskView } from "./protocol.ts";
import { startLimit } from "./time-limit.ts";
import type { createTokenSource } from "./token-cache.ts";

export type AgentOperation = "send" | "stream" | "subscribe" | "get" | "list" | "cancel";

export interface AgentClientOptions {
  readonly http: AgentHttp;
  readonly tokens: ReturnType<typeof createTokenSource>;
  readonly clock: Clock;
  /** Limit on a request, and on a stream's first update. */
  readonly requestTimeoutMs: number;
  /** Of one body, and of one event of a stream. */
  readonly bytesMax: number;
  readonly traceparent?: string;
  readonly onRead?: (bytes: number) => void;
  /** Whether the agent may be called still: asked when an issuer's answer was waited for in the middle of a call. */
  readonly mayRepeat: () => Promise<boolean>;
  /** Once for each request; of a stream at its first update. */
  readonly observe: (operation: AgentOperation, outcome: "ok" | A2aFailureKind, ms: number) => void;
}

export interface AgentPeer {
  readonly card: PeerCard;
  readonly entry: Pick<AgentEntry, "cardUrl" | "allowedOrigins" | "credentials">;
}

type Call<T> = (transport: Transport, options: RequestOptions) => T;

interface Asked {
  readonly operation: AgentOperation;
  readonly signal: AbortSignal;
  readonly onSent?: (() => void) | undefined;
}

export class AgentClient {
  /** Whether it is streamed from; an agent that only streams by a way that the SDK cannot read is polled. */
  readonly streams: boolean;
  /** The agent promises to make one task of repeated requests with one messageId. */
  readonly dedupes: boolean;
  readonly #options: AgentClientOptions;
  readonly #chosen: NonNullable<ReturnType<typeof chooseInterface>>;
  readonly #entry: AgentPeer["entry"];
  #prepared: string | undefined;

  /** @throws A2aFailure `protocol` when the card offers no interface that the bridge speaks */
  constructor(options: AgentClientOptions, peer: AgentPeer) {
    const chosen = chooseInterface(peer.card, peer.entry);
    if (chosen === undefined) throw new A2aFailure("protocol");
    this.#options = options;
    this.#chosen = chosen;
    this.#entry = peer.entry;
    // Of a 0.3 stream by HTTP+JSON the SDK does not say which chunks are appended: an answer would lose its beginning.
    const isLegible = chosen.binding === "JSONRPC" || chosen.version === "1.0";
    this.streams = isLegible && peer.card.capabilities.streaming === true;
    this.dedupes =
      peer.card.capabilities.extensions?.some(({ uri }) => uri === MESSAGE_ID_IDEMPOTENCY) === true;
  }

  /** Obtains the next call's token. Returns whether the issuer was asked for it. @throws A2aFailure `unauthenticated` */
  async prepare(): Promise<boolean> {
    const token = await this.#token(undefined);
    this.#prepared = token?.value;
    return token?.fetched ?? false;
  }

  /** SendMessage; returns as soon as the agent has a task, or with its message. */
  send(question: Question, signal: AbortSignal, onSent?: () => void) {
    const request = sendRequest(question);
    return this.#call({ operation: "send", signal, onSent }, async (transport, options) =>
      sendResult(await transport.sendMessage(request, options)),
    );
  }

  stream(question: Question, signal: AbortSignal, onSent?: () => void) {
    const request = sendRequest(question);
    return this.#stream({ operation: "stream", signal, onSent }, (transport, options) =>
      transport.sendMessageStream(request, options),
    );
  }

  subscribe(taskId: string, signal: AbortSignal) {
    return this.#stream({ operation: "subscribe", signal }, (transport, options) =>
      transport.resubscribeTask({ tenant: "", id: taskId }, options),
    );
  }

  /** GetTask, without its history unless that is asked for. */
  async getTask(taskId: string, signal: AbortSignal, withHistory = false) {
    const request = { tenant: "", id: taskId, historyLength: withHistory ? undefined : 0 };
    const task = await this.#call({ operation: "get", signal }, async (transport, options) =>
      taskView(await transport.getTask(request, options)),
    );
    if (task.taskId !== taskId) throw new A2aFailure("protocol");
    return task;
  }

  /** One page of ListTasks, newest first, with histories and without artifacts. */
  listTasks(page: { token: string; size: number }, signal: AbortSignal) {
    const request = {
      ...{ tenant: "", contextId: "", status: TaskState.TASK_STATE_UNSPECIFIED },
      ...{ pageSize: page.size, pageToken: page.token },
      ...{ statusTimestampAfter: undefined, includeArtifacts: false },
    };
    return this.#call({ operation: "list", signal }, async (transport, options) => {
      const response = await transport.listTasks(request, options);
      return { tasks: response.tasks.map(taskView), next: response.nextPageToken };
    });
  }

  async cancelTask(taskId: string, signal: AbortSignal): Promise<void> {
    await this.#call({ operation: "cancel", signal }, (transport, options) =>
      transport.cancelTask({ tenant: "", id: taskId, metadata: undefined }, options),
    );
  }

  async #call<T>(asked: Asked, call: Call<Promise<T>>): Promise<T> {
    const { result, limit } = await this.#begin(asked, call);
    limit.end();
    return result;
  }

  async *#stream(asked: Asked, call: Call<AsyncGenerator<StreamResponse, void>>) {
    const open = async (transport: Transport, options: RequestOptions) => {
      const events = call(transport, options);
      const first = await nextUpdate(events);
      if (first === undefined) throw new A2aFailure("ambiguous");
      return { events, first };
    };
    const { result, limit, failed } = await this.#begin(asked, open);
    limit.stopClock();
    try {
      yield result.first;
      for (;;) {
        const update = await Promise.race([nextUpdate(result.events), limit.expired]);
        if (update === undefined) return;
        yield update;
      }
    } catch (error) {
      throw failed(error);
    } finally {
      limit.end();
    }
  }

  /** The result of a call, which is repeated once with a fresh token after a 401. The caller ends its limit. */
  async #begin<T>({ operation, signal, onSent }: Asked, call: Call<Promise<T>>) {
    const { clock, requestTimeoutMs, observe } = this.#options;
    for (let attempt = 0; ; attempt++) {
      const token = this.#prepared ?? (await this.#token(undefined))?.value;
      this.#prepared = undefined;
      const exchange = this.#exchange(token, onSent);
      const startedAt = clock.now();
      const limit = startLimit(clock, requestTimeoutMs, signal);
      const failed = (error: unknown) => {
        signal.throwIfAborted();
        return classify(error, exchange, clock.now());
      };
      try {
        const transport = await openTransport(this.#chosen, exchange);
        const result = await Promise.race([call(transport, { signal: limit.signal }), limit.expired]);
        observe(operation, "ok", clock.now() - startedAt);
        return { result, limit, failed };
      } catch (error) {
        limit.end();
        const failure = failed(error);
        observe(operation, failure.kind, clock.now() - startedAt);
        const mayRefresh = failure.kind === "unauthenticated" && attempt === 0;
        if (!mayRefresh || this.#entry.credentials === undefined) throw failure;
        this.#prepared = (await this.#token(token))?.value;
        if (!(await this.#options.mayRepeat())) throw failure;
      }
    }
  }

  #exchange(token: string | undefined, onSent: (() => void) | undefined): Exchange {
    return new Exchange({
      http: this.#options.http,
      mayBePrivate: mayBePrivate(this.#entry, this.#chosen.url),
      bytesMax: this.#options.bytesMax,
      isSoundEvent: isSoundEvent(this.#chosen),
      onSent,
      onRead: this.#options.onRead,
      headers: {
        "a2a-version": this.#chosen.version,
        ...(this.#options.traceparent !== undefined && { traceparent: this.#options.traceparent }),
        ...(token !== undefined && { authorization: `Bearer ${token}` }),
      },
    });
  }

  async #token(rejected: string | undefined) {
    const { credentials } = this.#entry;
    return credentials && (await this.#options.tokens.token(credentials, rejected));
  }
}

async function nextUpdate(events: AsyncGenerator<StreamResponse, void>) {
  for (;;) {
    const next = await events.next();
    if (next.done) return undefined;
    const update = streamUpdate(next.value);
    if (update !== undefined) return update;
  }
}
