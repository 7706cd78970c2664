// Which parts of the bridge a commit wakes, here and in the other processes. The parts are set once all of them exist,
// because those that commit are themselves among those that are woken.
// Invariant: a part that is not woken still finds its work by polling.
import type { DelegationWorker } from "./delegation/worker.ts";
import type { Admitted } from "./ledger/admission-types.ts";

interface Wakeable {
  wake(): void;
}

interface Parts {
  readonly delegations: Pick<DelegationWorker, "wake" | "cancel">;
  readonly envelopes: Wakeable | undefined;
  /** The machines, when something came for their inbox. */
  readonly inbox: Wakeable | undefined;
  readonly notices: Wakeable;
  readonly memberships: Wakeable;
  readonly audit: Wakeable;
}

type Part = keyof Parts;

const CANCEL = "cancel:";

export class Wakeups {
  parts: Parts | undefined;
  /** Tells the other processes. */
  tell: (message: string) => void = () => undefined;

  /** Intake, or the derivation of an intake envelope, committed. */
  readonly admitted = (admitted: Admitted): void => {
    const parts: Part[] = [];
    if (admitted.admitted + admitted.answers > 0) parts.push("delegations");
    if (admitted.denied > 0) parts.push("audit");
    if (admitted.notices > 0) parts.push("notices");
    if (admitted.envelopes > 0) parts.push("envelopes");
    this.wake(...parts);
    for (const delegationId of admitted.canceled) {
      this.parts?.delegations.cancel(delegationId);
      this.tell(`${CANCEL}${delegationId}`);
    }
  };

  /** A delegation, or an intake envelope, ended: there is an audit record, and there may be a notice. */
  readonly ended = (): void => this.wake("audit", "notices");

  /** Another process told what it has committed. */
  readonly told = (message: string): void => {
    if (message.startsWith(CANCEL)) this.parts?.delegations.cancel(message.slice(CANCEL.length));
    else this.#wake(message.split(" ") as Part[]);
  };

  /** Leases were released: anything may be due. */
  all(): void {
    this.#wake(["delegations", "envelopes", "inbox", "notices", "memberships", "audit"]);
  }

  wake(...parts: readonly Part[]): void {
    if (parts.length === 0) return;
    this.#wake(parts);
    this.tell(parts.join(" "));
  }

  #wake(parts: readonly Part[]): void {
    for (const name of parts) this.parts?.[name]?.wake();
  }
}
