// Renews the leases of the delegations in progress together, at a third of their length.
// Invariants: a lease that the ledger no longer grants is dropped at once and its work interrupted; while the ledger
// cannot be reached a lease counts as fresh only until its own end, so that no agent is called on a lease which
// another process may already hold; leases that ran out meanwhile are renewed before this process claims anything.
import type { Clock } from "../../domain/clock.ts";
import { WorkLoop } from "../../runtime/work-loop.ts";
import type { Lease } from "../ledger/leases.ts";
import type { DelegationLedger } from "../ledger/ledger.ts";

/** Told once: another holder has the lease, or its delegation is terminal; or it is to be canceled. */
type Told = (why: "lost" | "canceled") => void;

export interface HeldLease {
  isFresh(): boolean;
  drop(): void;
}

interface Held {
  readonly lease: Lease;
  readonly tell: Told;
  until: number;
}

export interface LeaseKeeperOptions {
  readonly ledger: Pick<DelegationLedger, "renew">;
  readonly clock: Clock;
  readonly leaseMs: number;
  readonly onError: (error: unknown) => void;
}

export class LeaseKeeper {
  readonly #options: LeaseKeeperOptions;
  readonly #held = new Map<string, Held>();
  readonly loop: WorkLoop;

  constructor(options: LeaseKeeperOptions) {
    this.#options = options;
    const { clock, leaseMs, onError } = options;
    this.loop = new WorkLoop({ clock, onError, pollIntervalMs: leaseMs / 3, round: () => this.renew() });
  }

  hold(lease: Lease, until: number, tell: Told): HeldLease {
    const held: Held = { lease, tell, until };
    this.#held.set(lease.delegationId, held);
    return {
      isFresh: () => this.#options.clock.now() < held.until,
      drop: () => {
        if (this.#held.get(lease.delegationId) === held) this.#held.delete(lease.delegationId);
      },
    };
  }

  /**
   * Where a lease ran out while the process was stopped or the ledger away, renews all: a claim would give the work in
   * progress to this process a second time. @throws what the ledger throws
   */
  async renewExpired(): Promise<void> {
    const now = this.#options.clock.now();
    for (const { until } of this.#held.values()) if (until <= now) return await this.renew();
  }

  /** Renews every lease once. @throws what the ledger throws */
  async renew(): Promise<void> {
    const asked = [...this.#held.values()];
    if (asked.length === 0) return;
    const until = this.#options.clock.now() + this.#options.leaseMs;
    const { held, canceled } = await this.#options.ledger.renew(
      asked.map(({ lease }) => lease),
      until,
    );
    for (const each of asked) {
      const id = each.lease.delegationId;
      // Dropped during the renewal: the work has ended by itself.
      if (this.#held.get(id) !== each) continue;
      if (held.has(id)) each.until = until;
      else {
        this.#held.delete(id);
        each.tell("lost");
      }
      if (canceled.has(id)) each.tell("canceled");
    }
  }
}
