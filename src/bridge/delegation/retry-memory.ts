// What this process knows of a delegation that it put back, and the ledger does not: that the last request
// surely never reached the agent, and why. Invariants: it is believed only by the very next claim of the
// row (its fence is one higher), so another process's attempt in between is never overlooked; losing it
// costs one look at the agent, nothing more.
import type { TerminalReason } from "../ledger/states.ts";
import type { ClaimedDelegation, Lease } from "../ledger/types.ts";

export interface Remembered {
  /** No earlier request of this delegation can have reached the agent. */
  readonly undelivered: boolean;
  readonly reason: TerminalReason;
}

const ENTRIES_MAX = 8_192;

export class RetryMemory {
  readonly #entries = new Map<string, Remembered & { readonly fence: bigint }>();

  remember(lease: Lease, remembered: Remembered): void {
    this.#entries.delete(lease.delegationId);
    this.#entries.set(lease.delegationId, { ...remembered, fence: BigInt(lease.fence) });
    if (this.#entries.size <= ENTRIES_MAX) return;
    const oldest = this.#entries.keys().next().value;
    if (oldest !== undefined) this.#entries.delete(oldest);
  }

  /** What is known of a delegation just claimed; forgotten by asking. */
  take(claimed: ClaimedDelegation): Remembered | undefined {
    const { delegationId, fence } = claimed.lease;
    const entry = this.#entries.get(delegationId);
    this.#entries.delete(delegationId);
    return entry !== undefined && BigInt(fence) === entry.fence + 1n ? entry : undefined;
  }
}
