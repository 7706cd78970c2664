// A delegation worker with everything around it in the test's hands: the clock, agents.yaml, the trust
// gate, the homeserver. The agent it calls is real, over real HTTP, and so is the ledger.

import type { TestContext } from "node:test";
import { setTimeout as realPause } from "node:timers/promises";
import { pino } from "pino";
import type { AgentsSnapshot, AgentTarget } from "../../src/bridge/agents/loaded-agents.ts";
import type { TrustDecision } from "../../src/bridge/agents/trust.ts";
import { BridgeConfigFile } from "../../src/bridge/config.ts";
import { type AgentHttp, createAgentHttp } from "../../src/bridge/delegation/a2a/http-exchange.ts";
import { createTokenSource } from "../../src/bridge/delegation/a2a/token-cache.ts";
import type {
  DelegationDependencies,
  DelegationLimits,
  DelegationObserver,
} from "../../src/bridge/delegation/dependencies.ts";
import { DelegationWorker } from "../../src/bridge/delegation/worker.ts";
import type { PendingSend } from "../../src/bridge/ledger/replies.ts";
import type { SendResult } from "../../src/bridge/matrix/send-once.ts";
import { EN } from "../../src/bridge/texts/en.ts";
import { type AgentCard, MESSAGE_ID_IDEMPOTENCY } from "../../src/cards/card-fields.ts";
import type { EventId } from "../../src/domain/identifiers.ts";
import { namedTarget } from "./agents.ts";
import { T0 } from "./ledger.ts";
import { ManualClock } from "./manual-clock.ts";

export const LIMITS: DelegationLimits = {
  ...BridgeConfigFile.shape.limits.parse({}),
  concurrency: 8,
  agentConcurrency: 8,
  dispatchDeadline: 600_000,
  answerDeadline: 3_600_000,
  inputWait: 900_000,
  replyDeadline: 86_400_000,
  agentRequestTimeout: 10_000,
  answerBytes: 1024 * 1024,
  lease: 30_000,
  drain: 20_000,
};

export interface CardOptions {
  readonly streaming?: boolean;
  readonly dedupes?: boolean;
  readonly binding?: "JSONRPC" | "HTTP+JSON";
  readonly version?: "1.0" | "0.3";
}

export function cardOf(agentUrl: string, options: CardOptions = {}): AgentCard {
  const { binding = "JSONRPC", version = "1.0" } = options;
  const path = binding === "JSONRPC" ? (version === "1.0" ? "/rpc" : "/rpc03") : "/rest";
  const card = {
    name: "fault agent",
    description: "misbehaves",
    version: "1.0.0",
    supportedInterfaces: [{ url: `${agentUrl}${path}`, protocolBinding: binding, protocolVersion: version }],
    capabilities: {
      ...(options.streaming && { streaming: true }),
      ...(options.dedupes && { extensions: [{ uri: MESSAGE_ID_IDEMPOTENCY }] }),
    },
    defaultInputModes: ["text/plain"],
    // Required of a card, and read by nobody.
    defaultOutputModes: ["text/plain"],
    skills: [],
  };
  return card;
}

/** So many pauses of a millisecond are made for a request that is under way; one that takes longer hangs. */
const HANGING_PAUSES = 50;
/** As many for a statement, which does not hang: on a busy machine it is slow. */
const STATEMENT_PAUSES = 5_000;

/** Metrics as lines, such as `ended:completed/reply/answered`. */
export class RecordedMetrics implements DelegationObserver {
  readonly lines: string[] = [];
  ended(...facts: string[]): void {
    this.lines.push(`ended:${facts.join("/")}`);
  }
  deferred(reason: string): void {
    this.lines.push(`deferred:${reason}`);
  }
  leaseLost(): void {
    this.lines.push("leaseLost");
  }
  flowFailed(code: string): void {
    this.lines.push(`flowFailed:${code}`);
  }
  dispatchOverhead(): void {}
  agentCall(operation: string, outcome: string): void {
    this.lines.push(`call:${operation}/${outcome}`);
  }
  tokenRequest(outcome: string): void {
    this.lines.push(`token:${outcome}`);
  }
  count(line: string): number {
    return this.lines.filter((each) => each === line).length;
  }
}

export interface Harness {
  readonly clock: ManualClock;
  readonly deps: DelegationDependencies;
  readonly metrics: RecordedMetrics;
  /** Lines the worker logged. */
  readonly logged: string[];
  /** What reached the homeserver, in order. */
  readonly sent: PendingSend[];
  /** Every event is part of its room. */
  isAccepted: DelegationDependencies["isAccepted"];
  /** The media repository; there is nothing in it. */
  download: DelegationDependencies["download"];
  /** Results of the next sends, of which only those that succeed were attempted; then every send succeeds. */
  readonly sendResults: SendResult[];
  /** What agents.yaml says now; undefined: the agent was removed. */
  target: AgentTarget | undefined;
  /** What the trust gate says now. */
  trust: TrustDecision;
  trustChecks: number;
  /** Every call of the ledger, in order, by the method's name. */
  readonly calls: string[];
  /** The ledger's methods that have returned. */
  readonly returned: string[];
  /** How many of them have ended that may have changed a delegation. */
  ended: number;
  /** Runs before each call of the ledger; may throw, as a database does that is away. */
  onCall: (method: string) => void;
  /** Another process on the same ledger. It is not started. */
  worker(holder?: string, limits?: Partial<DelegationLimits>): DelegationWorker;
  /** A process that can be killed or stopped for a while. It is not started. */
  mortal(holder?: string): Mortal;
  /**
   * Lets real requests and statements run and moves the clock, until the condition holds.
   * @param stepMs how far the clock moves between two checks; 0 leaves it standing
   */
  until(condition: () => boolean | Promise<boolean>, stepMs?: number): Promise<void>;
  /** The clock stands still while a test's own work on the ledger is under way in the middle of a worker's. */
  during<T>(work: Promise<T>): Promise<T>;
}

/** What a process of its own has of its own: when it dies, its connections close and it writes no more. */
export interface Mortal {
  readonly worker: DelegationWorker;
  /** Whether it surely counts as alive among the processes. */
  isAlive: boolean;
  /** Called before and after each write of this process, with the method's name. */
  onWrite: (method: string, when: "before" | "after") => void;
  kill(): Promise<void>;
  /** Has it be killed before or after its first such write; returns whether it was. */
  killAt(method: string, when: "before" | "after"): () => boolean;
  /** These writes, or all of them, the lease's renewal too, wait from now on; returns how to let them go on. */
  pause(...methods: readonly string[]): () => void;
}

export interface HarnessOptions {
  readonly ledger: DelegationDependencies["ledger"];
  readonly card: AgentCard;
  /** Runs before each check of a condition. */
  readonly refresh?: () => Promise<void>;
  readonly entry?: Partial<AgentTarget["entry"]>;
  readonly limits?: Partial<DelegationLimits>;
  /** Where relative secret files start from. */
  readonly baseDirectory?: string;
}

export function delegationHarness(t: TestContext, options: HarnessOptions): Harness {
  const clock = new ManualClock(T0);
  const http = createAgentHttp();
  const tokens = createTokenSource({
    clock,
    baseDirectory: options.baseDirectory ?? "/nonexistent",
    observe: (outcome) => metrics.tokenRequest(outcome),
  });
  /** Statements and requests under way: time must not run away from them, unless they hang. */
  let underWay = 0;
  /** The statements among them. */
  let statements = 0;
  const counted = async <T>(work: Promise<T>): Promise<T> => {
    underWay += 1;
    try {
      return await work;
    } finally {
      underWay -= 1;
    }
  };
  const during = async <T>(work: Promise<T>): Promise<T> => {
    statements += 1;
    return await counted(work).finally(() => {
      statements -= 1;
    });
  };
  /** Of a stream its first bytes are waited for, of another body the end. */
  async function* countedBody(body: ReadableStream<Uint8Array>, isStream: boolean) {
    let isCounted = true;
    const end = () => {
      if (isCounted) underWay -= 1;
      isCounted = false;
    };
    underWay += 1;
    try {
      for await (const chunk of body) {
        if (isStream) end();
        yield chunk;
      }
    } finally {
      end();
    }
  }
  const countedHttp = (connections: AgentHttp): AgentHttp => ({
    ...connections,
    fetch: async (url, init) => {
      const response = await counted(connections.fetch(url, init));
      const isStream = String(response.headers["content-type"]).startsWith("text/event-stream");
      return { ...response, body: ReadableStream.from<Uint8Array>(countedBody(response.body, isStream)) };
    },
  });
  const recorded = new Proxy(options.ledger, {
    get:
      (target, method: string) =>
      async (...args: unknown[]) => {
        harness.onCall(method);
        harness.calls.push(method);
        const call = Reflect.get(target, method) as (...given: unknown[]) => Promise<unknown>;
        let changes = true;
        try {
          const result = await during(call.apply(target, args));
          changes = !(method === "claim" && (result as readonly unknown[]).length === 0);
          return result;
        } finally {
          if (changes) harness.ended += 1;
          harness.returned.push(method);
        }
      },
  });
  /** Those that were waited for in vain. */
  let hanging = 0;
  const settle = async () => {
    for (let pause = 0; pause < (statements === 0 ? HANGING_PAUSES : STATEMENT_PAUSES); pause++) {
      await realPause(1);
      hanging = Math.min(hanging, underWay);
      if (underWay === hanging) return;
    }
    hanging = underWay;
  };
  const metrics = new RecordedMetrics();
  const logged: string[] = [];
  const workers: DelegationWorker[] = [];
  let sentCount = 0;
  const allowedOrigins = options.card.supportedInterfaces.map(({ url }) => new URL(url).origin);
  const harness: Harness = {
    clock,
    metrics,
    logged,
    sent: [],
    sendResults: [],
    isAccepted: async () => ({ kind: "ok", value: true }),
    download: async () => ({ kind: "refused", status: 404, errcode: "M_NOT_FOUND" }),
    target: {
      ...namedTarget("docs"),
      entry: { ...namedTarget("docs").entry, allowedOrigins, ...options.entry },
    },
    trust: { trust: "verified", card: options.card, agentVersion: "1.0.0" },
    trustChecks: 0,
    calls: [],
    returned: [],
    ended: 0,
    onCall: () => {},
    during,
    deps: {
      ledger: recorded,
      directory: {
        current: async () => snapshotOf(harness.target),
      },
      trust: {
        check: async () => {
          harness.trustChecks += 1;
          return harness.trust;
        },
      },
      tokens: { token: async (...asked) => await counted(tokens.token(...asked)) },
      http: countedHttp(http),
      sender: {
        send: async (send) => {
          const planned = harness.sendResults.shift();
          if (planned !== undefined && planned.kind !== "sent") return planned;
          const earlier = await counted(options.ledger.recordAttempt(send.sendId, clock.now()));
          if (earlier !== undefined) return { kind: "sent", eventId: earlier };
          harness.sent.push(send);
          sentCount += 1;
          return planned ?? { kind: "sent", eventId: `$sent${sentCount}` as EventId };
        },
      },
      isAccepted: async (...asked) => await counted(harness.isAccepted(...asked)),
      download: async (...request) => await counted(harness.download(...request)),
      upload: async () => undefined,
      typing: () => {},
      mayClaim: () => true,
      isAlive: () => true,
      clock,
      random: { bytes: (length) => Buffer.alloc(length, 128) },
      log: pino({ level: "debug" }, { write: (line: string) => logged.push(line) }),
      metrics,
      limits: { ...LIMITS, ...options.limits },
      textsOf: () => EN,
      takesReactions: async () => true,
      holder: "one",
    },
    worker: (holder = "one", limits = {}) => {
      const { deps } = harness;
      const worker = new DelegationWorker({ ...deps, holder, limits: { ...deps.limits, ...limits } });
      workers.push(worker);
      return worker;
    },
    mortal: (holder = "mortal") => {
      const own = createAgentHttp();
      let isDead = false;
      const pauses = new Set<{ readonly methods: readonly string[]; readonly over: Promise<void> }>();
      const never = new Promise<never>(() => {});
      const ledger = new Proxy(recorded, {
        get:
          (target, method: string) =>
          async (...args: unknown[]) => {
            const call = Reflect.get(target, method) as (...args: unknown[]) => Promise<unknown>;
            mortal.onWrite(method, "before");
            for (const { methods, over } of pauses) {
              if (methods.length === 0 || methods.includes(method)) await over;
            }
            if (isDead) return never;
            const result = await call.apply(target, args);
            mortal.onWrite(method, "after");
            return isDead ? never : result;
          },
      });
      const mortal: Mortal = {
        worker: new DelegationWorker({
          ...{ ...harness.deps, ledger, http: countedHttp(own), holder },
          isAlive: () => mortal.isAlive,
        }),
        isAlive: true,
        onWrite: () => {},
        kill: async () => {
          isDead = true;
          await own.close();
        },
        killAt: (method, when) => {
          let isKilled = false;
          mortal.onWrite = (each, instant) => {
            if (isKilled || each !== method || instant !== when) return;
            isKilled = true;
            void mortal.kill();
          };
          return () => isKilled;
        },
        pause: (...methods) => {
          let resume = () => {};
          pauses.add({
            methods,
            over: new Promise((resolve) => {
              resume = resolve;
            }),
          });
          return resume;
        },
      };
      t.after(() => own.close());
      return mortal;
    },
    until: async (condition, stepMs = 100) => {
      for (let checks = 0; ; checks++) {
        await settle();
        await options.refresh?.();
        if (await condition()) return;
        if (checks > 4_000)
          throw new Error(`the condition never held; ${metrics.lines.slice(-20).join(" ")}`);
        // Between two timers nothing happens by itself, so the clock may jump to the next one.
        const idleMs = underWay === 0 ? (clock.wakeTimes[0] ?? 0) - clock.now() : 0;
        if (stepMs > 0) await clock.advance(Math.max(stepMs, idleMs));
      }
    },
  };
  t.after(async () => {
    const drains = Promise.all(workers.map((worker) => worker.drain()));
    let drained = false;
    void drains.then(() => {
      drained = true;
    });
    await harness.until(() => drained, 1_000);
    await http.close();
  });
  return harness;
}

function snapshotOf(target: AgentTarget | undefined): AgentsSnapshot {
  return {
    byGhost: new Map(target === undefined ? [] : [[target.ghost, target]]),
    partnerGhosts: [],
  };
}
