// Renews the leases of what is in progress together, at a third of their length. Invariants: a lease that the ledger no longer
// grants is dropped at once and its work interrupted; while the ledger cannot be reached a lease counts as fresh only until
// its own end, since another process may hold it then; leases that ran out meanwhile are renewed before anything is claimed.
import type { Clock } from "../../domain/clock.ts";
import { WorkLoop } from "../../runtime/work-loop.ts";
import type { Lease } from "../ledger/leases.ts";
import type { DelegationLedger } from "../ledger/ledger.ts";

/** Told once: another holder has the lease, or its delegation is terminal; or it is to be canceled. */
type OnEnd = (why: "lost" | "canceled") => void;

export type HeldLease = ReturnType<ReturnType<typeof createLeaseKeeper>["hold"]>;

interface Held {
  readonly lease: Lease;
  readonly onEnd: OnEnd;
  until: number;
}

export function createLeaseKeeper(
  ledger: Pick<DelegationLedger, "renew">,
  clock: Clock,
  leaseMs: number,
  onError: (error: unknown) => void,
) {
  const all = new Map<string, Held>();

  /** Renews every lease once. @throws what the ledger throws */
  const renew = async () => {
    const asked = [...all.values()];
    if (asked.length === 0) return;
    const until = clock.now() + leaseMs;
    const leases = asked.map(({ lease }) => lease);
    const { held, canceled } = await ledger.renew(leases, until);
    for (const each of asked) {
      const id = each.lease.delegationId;
      // Dropped during the renewal: the work has ended by itself.
      if (all.get(id) !== each) continue;
      if (held.has(id)) each.until = until;
      else {
        all.delete(id);
        each.onEnd("lost");
      }
      if (canceled.has(id)) each.onEnd("canceled");
    }
  };

  return {
    renew,
    // After a failure the rest of a lease has room for several tries.
    loop: new WorkLoop({
      ...{ clock, onError, round: renew },
      ...{ pollIntervalMs: leaseMs / 3, errorWaitMs: leaseMs / 10 },
    }),

    hold(lease: Lease, until: number, onEnd: OnEnd) {
      const held: Held = { lease, onEnd, until };
      all.set(lease.delegationId, held);
      return {
        isFresh: () => clock.now() < held.until,
        drop: () => {
          if (all.get(lease.delegationId) === held) all.delete(lease.delegationId);
        },
      };
    },

    /** Where a lease ran out, renews all: a claim would give their work to this process again. @throws what the ledger throws */
    async renewExpired(): Promise<void> {
      if ([...all.values()].some(({ until }) => until <= clock.now())) await renew();
    },
  };
}
