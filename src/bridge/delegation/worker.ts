// The delegation worker: claims what may be worked on and runs each delegation as a flow of its own.
// Invariants: never more flows than `concurrency`; claims follow each other only when woken or once a
// second; leases are renewed while flows run; a drain leaves every delegation finished or given back, and
// ends in its time: what a database that does not answer keeps, its lease gives back.
import { WorkLoop } from "../../runtime/work-loop.ts";
import type { ClaimedDelegation, Lease } from "../ledger/types.ts";
import type { DelegationDependencies } from "./dependencies.ts";
import { Flow, type FlowHost } from "./flow.ts";
import { LeaseKeeper } from "./lease-keeper.ts";

/** What a drain may take beyond `limits.drain`, for what it has interrupted to be given back. */
const DRAIN_GRACE_MS = 2_000;

export class DelegationWorker {
  readonly #deps: DelegationDependencies;
  readonly #keeper: LeaseKeeper;
  readonly #loop: WorkLoop;
  readonly #host: FlowHost;
  readonly #active = new Map<string, { readonly flow: Flow; ended: Promise<void> }>();
  readonly #keeping = new AbortController();
  #lastClaimWasFull = false;
  #isStarted = false;

  constructor(deps: DelegationDependencies) {
    this.#deps = deps;
    this.#keeper = new LeaseKeeper({
      ledger: deps.ledger,
      clock: deps.clock,
      leaseMs: deps.limits.lease,
      onError: () => deps.log.warn({ event: "leases_not_renewed" }),
    });
    this.#loop = new WorkLoop({
      clock: deps.clock,
      round: (signal) => this.#claim(signal),
      onError: () => deps.log.warn({ event: "delegations_not_claimed" }),
    });
    this.#host = {
      wake: () => this.#loop.wake(),
      isCrowded: () => this.#lastClaimWasFull && this.#active.size >= deps.limits.concurrency,
    };
  }

  /** Starts claiming; a second call does nothing. */
  start(): void {
    if (this.#isStarted) return;
    this.#isStarted = true;
    this.#loop.start();
    void this.#keeper.run(this.#keeping.signal);
  }

  /** Something may be claimable: look at once. */
  wake(): void {
    this.#loop.wake();
  }

  /** The delegation's question was redacted: its flow, if it runs here, ends now. */
  cancel(delegationId: string): void {
    this.#active.get(delegationId)?.flow.interrupt("canceled");
  }

  /**
   * Stops claiming, lets running work come to an end within the drain time, and gives back the rest.
   * A task that is only polled is given back at once: whoever follows it next loses nothing. Takes two
   * seconds longer than `limits.drain` at most.
   */
  async drain(): Promise<void> {
    const { clock, limits } = this.#deps;
    const timer = new AbortController();
    const after = (ms: number) => clock.sleep(ms, timer.signal).catch(() => undefined);
    const patience = after(limits.drain);
    const end = after(limits.drain + DRAIN_GRACE_MS);

    // The round in flight begins nothing more: what it still claims it gives back.
    const lastRound = this.#loop.drain();
    for (const { flow } of this.#active.values()) if (flow.isMovable) flow.interrupt("drain");
    await Promise.race([this.#allEnded(), patience]);
    for (const { flow } of this.#active.values()) flow.interrupt("drain");
    await Promise.race([Promise.all([lastRound, this.#allEnded()]), end]);
    timer.abort();
    this.#keeping.abort();
  }

  async #claim(draining: AbortSignal): Promise<boolean> {
    const { ledger, clock, holder, limits, metrics } = this.#deps;
    const limit = limits.concurrency - this.#active.size;
    if (limit <= 0) return false;
    const now = clock.now();
    const leaseUntil = now + limits.lease;
    const claimed = await ledger.claim({ holder, limit, now, leaseUntil });
    this.#lastClaimWasFull = claimed.length >= limit;
    if (draining.aborted) await this.#giveBack(claimed.map(({ lease }) => lease));
    else for (const each of claimed) this.#begin(each, leaseUntil);
    if (claimed.length > 0) metrics.claimed(claimed.length);
    return false;
  }

  #begin(claimed: ClaimedDelegation, leaseUntil: number): void {
    const { lease } = claimed;
    const flow = new Flow(claimed, this.#deps, this.#host);
    flow.attach(
      this.#keeper.hold(lease, leaseUntil, {
        lost: () => flow.interrupt("lost"),
        canceled: () => flow.interrupt("canceled"),
      }),
    );
    // A row whose lease ran out unnoticed can be claimed again: what still runs on the old one is over.
    this.#active.get(lease.delegationId)?.flow.interrupt("lost");
    const entry = { flow, ended: Promise.resolve() };
    this.#active.set(lease.delegationId, entry);
    this.#deps.metrics.inFlight(this.#active.size);
    entry.ended = flow.run().then(async (end) => {
      if (end === "held") await this.#giveBack([lease]);
      if (this.#active.get(lease.delegationId) === entry) this.#active.delete(lease.delegationId);
      this.#deps.metrics.inFlight(this.#active.size);
      this.#loop.wake();
    });
  }

  async #allEnded(): Promise<void> {
    await Promise.all([...this.#active.values()].map(({ ended }) => ended));
  }

  async #giveBack(leases: readonly Lease[]): Promise<void> {
    if (leases.length === 0) return;
    // With the database away the leases run out by themselves.
    await this.#deps.ledger
      .release(leases, this.#deps.clock.now())
      .catch(() => this.#deps.log.warn({ event: "leases_not_given_back", leases: leases.length }));
  }
}
