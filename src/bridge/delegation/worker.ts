// Claims delegations that are due and runs each by itself. Invariants: never more flows than `limits.concurrency`, of one
// agent than its share of them, and no more than half of either on streams, or of an agent's share on downloads, because both
// last; the last quarter of the slots is for agents with a few requests in progress, of which none took long lately; leases
// are renewed meanwhile; a drain finishes each, gives it back, or leaves it to its lease.
import { dirname, resolve } from "node:path";
import { type AgentId, type ServerName, serverOf } from "../../domain/identifiers.ts";
import { WorkLoop } from "../../runtime/work-loop.ts";
import { WorkQueue } from "../../runtime/work-queue.ts";
import type { BridgeConfig } from "../config.ts";
import type { ClaimSlot } from "../ledger/admission-types.ts";
import type { ClaimedDelegation, Lease } from "../ledger/leases.ts";
import type { Ledger } from "../ledger/ledger.ts";
import { createDownloader, createUploader } from "../matrix/files.ts";
import { createEventSender, type SenderDependencies } from "../matrix/send-once.ts";
import { createAgentHttp } from "./a2a/http-exchange.ts";
import { createTokenSource } from "./a2a/token-cache.ts";
import type { DelegationDependencies } from "./dependencies.ts";
import { createLeaseKeeper } from "./lease-keeper.ts";
import { createReadPace, type ReadPace } from "./read-pace.ts";
import { run } from "./run-delegation.ts";
import { type DelegationHost, RunningDelegation } from "./running-delegation.ts";
import { createTraces } from "./traces.ts";
import { createTyping } from "./typing.ts";

/** What a drain may take beyond `limits.drain`, for what it has interrupted to be given back. */
const DRAIN_GRACE_MS = 2_000;
/** After so long without a claim the process was stopped, or the database away. */
const GAP_MS = 60_000;
const PASS_HEADS_MS = 5_000;
/** An agent is slow for so many times as long as a request to it may take, from one on that took half of that. */
const SLOW_FOR = 10;

interface Claim {
  readonly claimed: ClaimedDelegation;
  readonly leaseUntil: number;
}

export class DelegationWorker implements DelegationHost {
  readonly #deps: DelegationDependencies;
  readonly #keeper: ReturnType<typeof createLeaseKeeper>;
  readonly #queue: WorkQueue<Claim>;
  readonly #passing: WorkLoop;
  /** Whether the last claim took all that it could. */
  #hasFreeSlots = false;
  readonly #active = new Map<string, RunningDelegation>();
  /** The agents of questions that are being admitted and claimed. */
  readonly #reserved = new Set<Pick<ClaimedDelegation, "agentId">>();
  /** Until when agents are slow. */
  readonly #slowUntil = new Map<AgentId, number>();
  #claimedAt = Number.NEGATIVE_INFINITY;
  upSince = Number.NEGATIVE_INFINITY;
  readonly pace: ReadPace;

  constructor(deps: DelegationDependencies) {
    this.#deps = deps;
    this.pace = createReadPace(deps.clock);
    this.#keeper = createLeaseKeeper(deps.ledger, deps.clock, deps.limits.lease, () =>
      deps.log.warn({ event: "leases_not_renewed" }),
    );
    this.#queue = new WorkQueue({
      clock: deps.clock,
      concurrency: deps.limits.concurrency,
      claim: (limit) => this.#claim(limit),
      work: (claim) => this.#work(claim),
      giveBack: (claims) => this.#giveBack(claims.map(({ claimed }) => claimed.lease)),
      onError: () => deps.log.warn({ event: "delegations_not_claimed" }),
    });
    this.#passing = new WorkLoop({
      clock: deps.clock,
      round: () => this.#passHeads(),
      onError: () => deps.log.warn({ event: "heads_not_passed" }),
      pollIntervalMs: PASS_HEADS_MS,
    });
  }

  start(): void {
    for (const part of [this.#queue, this.#keeper.loop, this.#passing]) part.start();
  }

  wake(): void {
    this.#queue.wake();
  }

  /** A slot for a question to this agent that is being admitted, as long as the agent has half of its share left. */
  reserve(agent: AgentId, holder: string): ClaimSlot | undefined {
    const isOpen = this.slots.free - this.#reserved.size > this.#kept;
    const inProgress = isOpen ? this.#agentsInProgress() : this.#agentsBeforeKept();
    const most = isOpen ? this.#shareOfAgent / 2 : this.#few;
    const ofAgent = inProgress.filter((one) => one === agent);
    const begin = ofAgent.length < most ? this.#queue.reserve() : undefined;
    if (begin === undefined) return undefined;
    const leaseUntil = this.#deps.clock.now() + this.#deps.limits.lease;
    const reserved = { agentId: agent };
    this.#reserved.add(reserved);
    const end = (claimed: ClaimedDelegation | undefined) => {
      begin(claimed && { claimed, leaseUntil });
      // By then the work has begun.
      queueMicrotask(() => this.#reserved.delete(reserved));
    };
    return { holder, leaseUntil, end };
  }

  /** All leases are lost, or about to be: what runs ends now, so that its slots are free for what is claimed next. */
  lost(): void {
    for (const running of this.#active.values()) running.interrupt("lost");
  }

  /** The delegation is to be canceled: its work, if it runs here, ends now; else it is due. */
  cancel(delegationId: string): void {
    const running = this.#active.get(delegationId);
    if (running === undefined) this.wake();
    else running.interrupt("canceled");
  }

  /**
   * Lets running work come to an end within `limits.drain`, and gives back the rest within two seconds more. A task that is
   * only polled is given back at once: whoever follows it next loses nothing.
   */
  async drain(): Promise<void> {
    const { clock, limits } = this.#deps;
    const timer = new AbortController();
    const after = (ms: number) => clock.sleep(ms, timer.signal).catch(() => undefined);
    const patience = after(limits.drain);
    const end = after(limits.drain + DRAIN_GRACE_MS);

    const drained = this.#queue.drain();
    for (const running of this.#active.values()) if (running.isMovable) running.interrupt("drain");
    await Promise.race([drained, patience]);
    for (const running of this.#active.values()) running.interrupt("drain");
    await Promise.race([drained, end]);
    timer.abort();
    for (const loop of [this.#keeper.loop, this.#passing]) void loop.drain();
  }

  get slots(): { readonly request: number; readonly stream: number; readonly free: number } {
    const stream = this.#streaming.length;
    const free = Math.max(0, this.#deps.limits.concurrency - this.#active.size);
    return { request: this.#active.size - stream, stream, free };
  }

  get #streaming(): RunningDelegation[] {
    return [...this.#active.values()].filter(({ holdsStream }) => holdsStream);
  }

  mayStream(agent: AgentId): boolean {
    const streaming = this.#streaming;
    const ofAgent = streaming.filter(({ claimed }) => claimed.agentId === agent);
    return (
      ofAgent.length < Math.floor(this.#shareOfAgent / 2) &&
      streaming.length < Math.floor(this.#deps.limits.concurrency / 2)
    );
  }

  /** Half of an agent's share for all senders, and a quarter of it for those of one server. */
  mayDownload(agent: AgentId, server: ServerName): boolean {
    const downloading = [...this.#active.values()].filter(({ isDownloading }) => isDownloading);
    const ofAgent = downloading.filter(({ claimed }) => claimed.agentId === agent);
    const ofServer = downloading.filter(({ claimed }) => serverOf(claimed.sender) === server);
    const part = (of: number) => Math.max(1, Math.floor(this.#shareOfAgent / of));
    return ofAgent.length < part(2) && ofServer.length < part(4);
  }

  get #shareOfAgent(): number {
    const { concurrency, agentConcurrency = Math.ceil(concurrency / 4) } = this.#deps.limits;
    return agentConcurrency;
  }

  called(agent: AgentId, ms: number): void {
    const { agentRequestTimeout } = this.#deps.limits;
    if (ms < agentRequestTimeout / 2) return;
    this.#slowUntil.set(agent, this.#deps.clock.now() + SLOW_FOR * agentRequestTimeout);
  }

  /**
   * Slots for agents with a few requests in progress: several that hang would else take all slots together. Many that hang
   * fill these too, once, for as long as a request may take; from then on they are slow.
   */
  get #kept(): number {
    const { concurrency } = this.#deps.limits;
    return Math.max(0, Math.min(Math.floor(concurrency / 4), concurrency - this.#shareOfAgent));
  }

  get #few(): number {
    return Math.max(1, Math.floor(this.#shareOfAgent / 8));
  }

  #agentsInProgress(): AgentId[] {
    return [...this.#agentsOfRequests(), ...this.#streaming.map(({ claimed }) => claimed.agentId)];
  }

  /** Without streams. @param claimed what does not run yet */
  #agentsOfRequests(claimed: readonly ClaimedDelegation[] = []): AgentId[] {
    const running = [...this.#active.values()].filter(({ holdsStream }) => !holdsStream);
    return [...running.map((one) => one.claimed), ...this.#reserved, ...claimed].map((one) => one.agentId);
  }

  /** The same where the kept slots are given: a slow agent counts as if it had its few. */
  #agentsBeforeKept(claimed: readonly ClaimedDelegation[] = []): AgentId[] {
    const now = this.#deps.clock.now();
    const slow = [...this.#slowUntil].flatMap(([agent, until]) => (now < until ? [agent] : []));
    return [
      ...this.#agentsOfRequests(claimed),
      ...slow.flatMap((agent) => Array<AgentId>(this.#few).fill(agent)),
    ];
  }

  async #claim(limit: number): Promise<Claim[]> {
    const { ledger, clock, holder, limits, mayClaim } = this.#deps;
    if (!mayClaim()) return [];
    await this.#keeper.renewExpired();
    const now = clock.now();
    const leaseUntil = now + limits.lease;
    const claimed: ClaimedDelegation[] = [];
    const claim = async (upTo: number, most: number, inProgress: readonly AgentId[]) => {
      if (claimed.length >= upTo) return;
      const share = { most, inProgress };
      claimed.push(...(await ledger.claim({ holder, limit: upTo - claimed.length, now, leaseUntil, share })));
    };
    const open = limit - this.#kept;
    await claim(open, this.#shareOfAgent, this.#agentsInProgress());
    // What was claimed is not to wait for the end of its lease. Where less than all was due, no more is.
    if (claimed.length >= open) {
      await claim(limit, this.#few, this.#agentsBeforeKept(claimed)).catch((error: unknown) => {
        if (claimed.length === 0) throw error;
      });
    }
    if (now - this.#claimedAt > GAP_MS) this.upSince = now;
    this.#claimedAt = now;
    this.#hasFreeSlots = claimed.length < limit;
    return claimed.map((one) => ({ claimed: one, leaseUntil }));
  }

  async #passHeads(): Promise<void> {
    const { ledger, clock, mayClaim } = this.#deps;
    const now = clock.now();
    if (!this.#hasFreeSlots || now - this.#claimedAt > GAP_MS || !mayClaim()) return;
    if ((await ledger.passHeads(this.upSince, now)) > 0) this.wake();
  }

  async #work({ claimed, leaseUntil }: Claim): Promise<void> {
    const { lease } = claimed;
    const { delegationId } = lease;
    const running = new RunningDelegation(claimed, this.#deps, this);
    running.lease = this.#keeper.hold(lease, leaseUntil, (why) => running.interrupt(why));
    // A row whose lease ran out unnoticed can be claimed again: what still runs on the old one is over.
    this.#active.get(delegationId)?.interrupt("lost");
    this.#active.set(delegationId, running);
    const end = await run(running);
    if (end === "held") await this.#giveBack([lease]);
    if (this.#active.get(delegationId) === running) this.#active.delete(delegationId);
  }

  async #giveBack(leases: readonly Lease[]): Promise<void> {
    if (leases.length === 0) return;
    // With the database away the leases run out by themselves.
    await this.#deps.ledger
      .release(leases, this.#deps.clock.now())
      .catch(() => this.#deps.log.warn({ event: "leases_not_given_back", leases: leases.length }));
  }
}

type Given =
  | "ledger"
  | "directory"
  | "trust"
  | "mayClaim"
  | "isAlive"
  | "metrics"
  | "clock"
  | "random"
  | "log";

export function createDelegationWorker(
  options: Pick<DelegationDependencies, Given | "textsOf"> & {
    readonly config: BridgeConfig;
    readonly sending: SenderDependencies;
    readonly rooms: Pick<Ledger["memberships"], "isRoomEncrypted">;
  },
) {
  const { config, sending, rooms, ...given } = options;
  const { clock, random, metrics, ledger } = given;
  const http = createAgentHttp();
  const traces = config.traces && createTraces(config.traces.url, config.homeserver.serverName, random);
  const worker = new DelegationWorker({
    ...given,
    http,
    traces,
    tokens: createTokenSource({
      clock,
      baseDirectory: dirname(resolve(config.directory, config.agentsFile)),
      observe: (outcome) => metrics.tokenRequest(outcome),
    }),
    sender: createEventSender({ ...sending, ledger }),
    download: createDownloader(sending),
    isAccepted: (ghost, room, said, signal) =>
      sending.ghosts.acting(ghost, (actor) => sending.homeserver.isAccepted(actor, room, said), signal),
    upload: createUploader({ ...sending, random, ledger: rooms }),
    typing: createTyping(clock, (room, ghost, timeoutMs) =>
      sending.ghosts
        .acting(ghost, (actor) => sending.homeserver.typing(actor, room, timeoutMs))
        .catch(() => undefined),
    ),
    // A reaction is not encrypted.
    takesReactions: async (room) =>
      config.encryption.senderDevices === "allow_all" || !(await rooms.isRoomEncrypted(room)),
    limits: config.limits,
    holder: `${process.pid}-${random.bytes(8).toString("hex")}`,
  });
  return {
    worker,
    /** Ends the connections to agents and exports the last traces; to be called when the worker has drained. */
    close: async () => {
      await Promise.all([http.close(), traces?.close()]);
    },
  };
}
