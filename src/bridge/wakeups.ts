// Which parts of the bridge a commit wakes. The parts are set once all of them exist, because those that commit are
// themselves among those that are woken. Invariant: a part that is not woken still finds its work by polling.
import type { DelegationWorker } from "./delegation/worker.ts";
import type { Admitted } from "./ledger/admission.ts";

interface Wakeable {
  wake(): void;
}

export interface WokenParts {
  readonly delegations: Pick<DelegationWorker, "wake" | "cancel">;
  readonly notices: Wakeable;
  readonly memberships: Wakeable;
  readonly audit: Wakeable;
  readonly envelopes: Wakeable | undefined;
}

export class Wakeups {
  parts: WokenParts | undefined;

  /** Intake, or a derivation, committed. */
  admitted(admitted: Admitted): void {
    const { parts } = this;
    if (admitted.admitted > 0) parts?.delegations.wake();
    if (admitted.denied > 0) parts?.audit.wake();
    if (admitted.notices > 0) parts?.notices.wake();
    if (admitted.envelopes > 0) parts?.envelopes?.wake();
    for (const delegationId of admitted.canceled) parts?.delegations.cancel(delegationId);
  }

  /** A delegation, or an intake envelope, ended: there is an audit record, and there may be a notice. */
  ended(): void {
    this.parts?.audit.wake();
    this.parts?.notices.wake();
  }

  /** The trust in an agent's card changed: there is an audit record. */
  trustChanged(): void {
    this.parts?.audit.wake();
  }

  /** A room's state changed: ghosts may have something to do there, or something to say. */
  roomStateChanged(): void {
    this.parts?.notices.wake();
    this.parts?.memberships.wake();
  }

  /** Ghosts' rooms are to be read again. */
  membershipsDue(): void {
    this.parts?.memberships.wake();
  }
}
