// A delegation worker with everything around it in the test's hands: the clock, agents.yaml, the trust
// gate, the homeserver. The agent it calls is real, over real HTTP.

import type { TestContext } from "node:test";
import { setTimeout as realPause } from "node:timers/promises";
import { pino } from "pino";
import type { AgentsSnapshot, AgentTarget } from "../../src/bridge/agents/directory.ts";
import type { TrustDecision } from "../../src/bridge/agents/trust.ts";
import { createAgentHttp } from "../../src/bridge/delegation/a2a/http.ts";
import { createTokenSource } from "../../src/bridge/delegation/a2a/tokens.ts";
import type {
  DelegationDependencies,
  DelegationLimits,
  DelegationObserver,
} from "../../src/bridge/delegation/dependencies.ts";
import { DelegationWorker } from "../../src/bridge/delegation/worker.ts";
import type { PendingSend } from "../../src/bridge/ledger/replies.ts";
import type { SendResult } from "../../src/bridge/matrix/send.ts";
import type { AgentCard } from "../../src/cards/agent-card.ts";
import { MESSAGE_ID_IDEMPOTENCY } from "../../src/cards/extensions.ts";
import type { EventId, RoomId } from "../../src/domain/identifiers.ts";
import { agentTarget } from "./agent-target.ts";
import { type FaultAgent, type FaultAgentOptions, startFaultAgent } from "./fault-agent.ts";
import { T0 } from "./ledger.ts";
import { ManualClock } from "./manual-clock.ts";
import { MemoryLedger, type MemoryRow } from "./memory-ledger.ts";

export const LIMITS: DelegationLimits = {
  concurrency: 8,
  dispatchDeadline: 600_000,
  answerDeadline: 3_600_000,
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
  return {
    name: "fault agent",
    description: "misbehaves",
    version: "1.0.0",
    supportedInterfaces: [{ url: `${agentUrl}${path}`, protocolBinding: binding, protocolVersion: version }],
    capabilities: {
      ...(options.streaming && { streaming: true }),
      ...(options.dedupes && { extensions: [{ uri: MESSAGE_ID_IDEMPOTENCY }] }),
    },
    defaultInputModes: ["text/plain"],
    defaultOutputModes: ["text/plain"],
    skills: [],
  };
}

/** Metrics as lines, such as `ended:completed/reply/answered`. */
export class RecordedMetrics implements DelegationObserver {
  readonly lines: string[] = [];
  inProgress(): void {}
  claimed(count: number): void {
    this.lines.push(`claimed:${count}`);
  }
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
  /** Results of the next sends; then every send succeeds. */
  readonly sendResults: SendResult[];
  /** What agents.yaml says now; undefined: the agent was removed. */
  target: AgentTarget | undefined;
  /** What the trust gate says now. */
  trust: TrustDecision;
  trustChecks: number;
  /** Another process on the same ledger. It is not started. */
  worker(holder?: string, limits?: Partial<DelegationLimits>): DelegationWorker;
  /** A process that can be killed or stopped for a while. It is not started. */
  mortal(holder?: string): Mortal;
  /**
   * Lets real requests run and moves the clock, until the condition holds.
   * @param stepMs how far the clock moves between two looks; 0 leaves it standing
   */
  until(condition: () => boolean | Promise<boolean>, stepMs?: number): Promise<void>;
}

/** What a process of its own has of its own: when it dies, its connections close and it writes no more. */
export interface Mortal {
  readonly worker: DelegationWorker;
  /** Called before and after each write of this process, with the method's name. */
  onWrite: (method: string, when: "before" | "after") => void;
  kill(): Promise<void>;
  /** These writes, or all of them, the lease's renewal too, wait from now on; returns how to let them go on. */
  pause(...methods: readonly string[]): () => void;
}

export interface HarnessOptions {
  readonly ledger: DelegationDependencies["ledger"];
  readonly card: AgentCard;
  readonly entry?: Partial<AgentTarget["entry"]>;
  readonly limits?: Partial<DelegationLimits>;
  /** Where relative secret files start from. */
  readonly baseDirectory?: string;
}

export function delegationHarness(t: TestContext, options: HarnessOptions): Harness {
  const clock = new ManualClock(T0);
  const http = createAgentHttp();
  const metrics = new RecordedMetrics();
  const logged: string[] = [];
  const workers: DelegationWorker[] = [];
  let sentCount = 0;
  const harness: Harness = {
    clock,
    metrics,
    logged,
    sent: [],
    sendResults: [],
    target: { ...agentTarget("docs"), entry: { ...agentTarget("docs").entry, ...options.entry } },
    trust: { trust: "verified", card: options.card, agentVersion: "1.0.0" },
    trustChecks: 0,
    deps: {
      ledger: options.ledger,
      directory: {
        current: async () => snapshotOf(harness.target),
        onChange: () => () => {},
        close: async () => {},
      },
      trust: {
        check: async () => {
          harness.trustChecks += 1;
          return harness.trust;
        },
      },
      tokens: createTokenSource({
        http,
        clock,
        baseDirectory: options.baseDirectory ?? "/nonexistent",
        observe: (outcome) => metrics.tokenRequest(outcome),
      }),
      http,
      sender: {
        send: async (send) => {
          const planned = harness.sendResults.shift();
          if (planned !== undefined && planned.kind !== "sent") return planned;
          harness.sent.push(send);
          sentCount += 1;
          return planned ?? { kind: "sent", eventId: `$sent${sentCount}` as EventId };
        },
      },
      clock,
      random: { bytes: (length) => Buffer.alloc(length, 128) },
      log: pino({ level: "debug" }, { write: (line: string) => logged.push(line) }),
      metrics,
      limits: { ...LIMITS, ...options.limits },
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
      const ledger = new Proxy(options.ledger, {
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
        worker: new DelegationWorker({ ...harness.deps, ledger, http: own, holder }),
        onWrite: () => {},
        kill: async () => {
          isDead = true;
          await own.close();
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
      for (let look = 0; !(await condition()); look++) {
        if (look > 4_000) throw new Error(`the condition never held; ${metrics.lines.slice(-20).join(" ")}`);
        await realPause(2);
        if (stepMs > 0) await clock.advance(stepMs);
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

export interface DelegationSetUp {
  readonly agent: FaultAgent;
  readonly ledger: MemoryLedger;
  readonly harness: Harness;
  /** Admits a question. */
  admit(name?: string, room?: string, changes?: Partial<MemoryRow>): MemoryRow;
}

export interface DelegationSetUpOptions extends FaultAgentOptions {
  readonly card?: CardOptions;
  readonly harness?: Partial<HarnessOptions>;
}

/** A harness on the ledger in memory, with a fault agent whose card says what it does. */
export async function setUpDelegation(
  t: TestContext,
  options: DelegationSetUpOptions = {},
): Promise<DelegationSetUp> {
  const agent = await startFaultAgent(t, options);
  const ledger = new MemoryLedger();
  const { streaming = false, dedupe = false } = options;
  const card = cardOf(agent.url, { streaming, dedupes: dedupe, ...options.card });
  const harness = delegationHarness(t, { ledger, card, ...options.harness });
  return {
    agent,
    ledger,
    harness,
    admit: (name = "q1", room = "r", changes = {}) => {
      const { agentId, ghost, fingerprint } = agentTarget("docs");
      const row = ledger.admit({
        roomId: `!${room}` as RoomId,
        sourceEventId: `$${name}` as EventId,
        ghost,
        agentId,
        targetFingerprint: fingerprint,
        admittedAt: T0,
      });
      return Object.assign(row, changes);
    },
  };
}

function snapshotOf(target: AgentTarget | undefined): AgentsSnapshot {
  return { byGhost: new Map(target === undefined ? [] : [[target.ghost, target]]), revision: 1 };
}
