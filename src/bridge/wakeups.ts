// Which parts of the bridge a commit wakes. The parts are set once all of them exist, because those that commit are
// themselves among those that are woken. Invariant: a part that is not woken still finds its work by polling.
import type { DelegationWorker } from "./delegation/worker.ts";
import type { Admitted } from "./ledger/admission-types.ts";

interface Wakeable {
  wake(): void;
}

interface Parts {
  readonly notices: Wakeable;
  readonly memberships: Wakeable;
  readonly audit: Wakeable;
}

export class Wakeups {
  parts:
    | (Parts & {
        readonly delegations: Pick<DelegationWorker, "wake" | "cancel">;
        readonly envelopes: Wakeable | undefined;
      })
    | undefined;

  /** Intake, or the derivation of an intake envelope, committed. */
  readonly admitted = (admitted: Admitted): void => {
    const { parts } = this;
    if (admitted.admitted > 0) parts?.delegations.wake();
    if (admitted.denied > 0) this.wake("audit");
    if (admitted.notices > 0) this.wake("notices");
    if (admitted.envelopes > 0) parts?.envelopes?.wake();
    for (const delegationId of admitted.canceled) parts?.delegations.cancel(delegationId);
  };

  /** A delegation, or an intake envelope, ended: there is an audit record, and there may be a notice. */
  readonly ended = (): void => this.wake("audit", "notices");

  wake(...names: readonly (keyof Parts)[]): void {
    for (const name of names) this.parts?.[name].wake();
  }
}
