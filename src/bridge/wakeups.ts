// Which parts of the bridge a commit wakes, here and in the other processes. The parts are set once all of them exist.
// Invariants: a part that is not woken still finds its work by polling; the other processes are told at once, and then of
// what follows together, because each message is a commit here and a look at the database in each of them.
import type { Clock } from "../domain/clock.ts";
import type { DelegationWorker } from "./delegation/worker.ts";
import type { Admitted } from "./ledger/admission-types.ts";

type Parts = { readonly delegations: Pick<DelegationWorker, "wake" | "cancel"> } & Readonly<
  Record<"envelopes" | "inbox" | "notices" | "memberships", { wake(): void } | undefined>
>;

type Part = keyof Parts;

const CANCEL = "cancel:";
const TOLD_EVERY_MS = 100;

export class Wakeups {
  readonly #clock: Clock;
  readonly #untold = new Set<Part>();
  #isPausing = false;
  parts: Parts | undefined;
  tell: (message: string) => void = () => undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Intake, or the derivation of an intake envelope, committed. */
  readonly admitted = (admitted: Admitted): void => {
    const parts: Part[] = [];
    const claimed = admitted.claimed === undefined ? 0 : 1;
    if (admitted.admitted - claimed + admitted.answers > 0) parts.push("delegations");
    if (admitted.notices > 0) parts.push("notices");
    if (admitted.envelopes > 0) parts.push("envelopes");
    this.wake(...parts);
    for (const delegationId of admitted.canceled) {
      this.parts?.delegations.cancel(delegationId);
      this.tell(`${CANCEL}${delegationId}`);
    }
  };

  /** A delegation ended without an answer, or an intake envelope expired: there may be a notice. */
  readonly unanswered = (): void => this.wake("notices");

  readonly told = (message: string): void => {
    if (message.startsWith(CANCEL)) this.parts?.delegations.cancel(message.slice(CANCEL.length));
    else this.#wake(message.split(" ") as Part[]);
  };

  /** Leases were released: anything may be due. */
  all(): void {
    this.#wake(["delegations", "envelopes", "inbox", "notices", "memberships"]);
  }

  wake(...parts: readonly Part[]): void {
    if (parts.length === 0) return;
    this.#wake(parts);
    for (const part of parts) this.#untold.add(part);
    if (!this.#isPausing) void this.#tellAll();
  }

  async #tellAll(): Promise<void> {
    this.#isPausing = true;
    while (this.#untold.size > 0) {
      this.tell([...this.#untold].join(" "));
      this.#untold.clear();
      await this.#clock.sleep(TOLD_EVERY_MS);
    }
    this.#isPausing = false;
  }

  #wake(parts: readonly Part[]): void {
    for (const name of parts) this.parts?.[name]?.wake();
  }
}
