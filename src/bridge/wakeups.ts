// Which parts of the bridge a commit wakes, here and in the other processes. The parts are set once all of them exist.
// Invariants: a part that is not woken still finds its work by polling; the other processes are told at once, and then of
// what follows together, because each message is a commit here and a look at the database in each of them.
import type { Clock } from "../domain/clock.ts";
import type { DelegationWorker } from "./delegation/worker.ts";
import type { Admitted } from "./ledger/admission-types.ts";

type Wakeables = { readonly delegations: Pick<DelegationWorker, "wake" | "cancel"> } & Readonly<
  Record<"envelopes" | "inbox" | "notices" | "memberships", { wake(): void } | undefined>
>;

type WakeableName = keyof Wakeables;

const CANCEL = "cancel:";
const SEND_EVERY_MS = 100;

export class Wakeups {
  readonly #clock: Clock;
  readonly #unsent = new Set<WakeableName>();
  #isPausing = false;
  wakeables: Wakeables | undefined;
  send: (message: string) => void = () => undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Intake, or the derivation of an intake envelope, committed. */
  readonly admitted = (admitted: Admitted): void => {
    const names: WakeableName[] = [];
    const claimed = admitted.claimed === undefined ? 0 : 1;
    if (admitted.admitted - claimed + admitted.answers > 0) names.push("delegations");
    if (admitted.notices > 0) names.push("notices");
    if (admitted.envelopes > 0) names.push("envelopes");
    this.wake(...names);
    for (const delegationId of admitted.canceled) {
      this.wakeables?.delegations.cancel(delegationId);
      this.send(`${CANCEL}${delegationId}`);
    }
  };

  /** A delegation ended without an answer, or an intake envelope expired: there may be a notice. */
  readonly unanswered = (): void => this.wake("notices");

  readonly receive = (message: string): void => {
    if (message.startsWith(CANCEL)) this.wakeables?.delegations.cancel(message.slice(CANCEL.length));
    else this.#wake(message.split(" ") as WakeableName[]);
  };

  /** Leases were released: anything may be due. */
  all(): void {
    this.#wake(["delegations", "envelopes", "inbox", "notices", "memberships"]);
  }

  wake(...names: readonly WakeableName[]): void {
    if (names.length === 0) return;
    this.#wake(names);
    for (const name of names) this.#unsent.add(name);
    if (!this.#isPausing) void this.#sendAll();
  }

  async #sendAll(): Promise<void> {
    this.#isPausing = true;
    while (this.#unsent.size > 0) {
      this.send([...this.#unsent].join(" "));
      this.#unsent.clear();
      await this.#clock.sleep(SEND_EVERY_MS);
    }
    this.#isPausing = false;
  }

  #wake(names: readonly WakeableName[]): void {
    for (const name of names) this.wakeables?.[name]?.wake();
  }
}
