// Random orders of the operations that open and close a partnership, from a seed. Pure.
// Invariants: the same seed gives the same orders; an operation is in an order only where its rules allow it; what a
// partnership is after an operation is said here, and nowhere derived from what the programs do.
import type { RoomChoice } from "../offboard/open.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation } from "../organisations.ts";
import { SeededRandom } from "./seeded-random.ts";

export type Operation =
  | { readonly act: "contain" | "restore" | "rotate"; readonly by: CompleteOrganisation }
  | {
      readonly act: "remove";
      readonly by: CompleteOrganisation;
      readonly kind: "full" | "emergency";
      readonly rooms: RoomChoice;
    }
  | { readonly act: "readmit"; readonly by: CompleteOrganisation; readonly rooms: "new" | "reopen" };

/** How the two organisations stand to one another. */
export interface Partnership {
  /** What became of shared rooms at the removal; null while they are partners. */
  readonly removed: RoomChoice | null;
  /** Who contains the other. */
  readonly containedBy: readonly CompleteOrganisation[];
}

export const PARTNERS: Partnership = { removed: null, containedBy: [] };

/** Seconds that an operation and the examination after it take on a quiet machine. */
const COSTS: Readonly<Record<Operation["act"], number>> = {
  contain: 15,
  restore: 30,
  rotate: 20,
  remove: 70,
  readmit: 70,
};

export function isOpen({ removed, containedBy }: Partnership): boolean {
  return removed === null && containedBy.length === 0;
}

/** Every operation that an operator may begin now. */
export function possible(partnership: Partnership): readonly Operation[] {
  const { removed, containedBy } = partnership;
  return COMPLETE_ORGANISATIONS.flatMap((by): Operation[] => {
    if (removed !== null) {
      // Rooms that were replaced cannot be opened again; where they were kept, new ones may be chosen too.
      const rooms = removed === "keep" ? (["new", "reopen"] as const) : (["new"] as const);
      return rooms.map((choice) => ({ act: "readmit", by, rooms: choice }));
    }
    const removals = (["full", "emergency"] as const).flatMap((kind) =>
      (["keep", "replace"] as const).map((rooms) => ({ act: "remove", by, kind, rooms }) as const),
    );
    return [
      { act: containedBy.includes(by) ? "restore" : "contain", by },
      ...(isOpen(partnership) ? [{ act: "rotate", by } as const] : []),
      ...removals,
    ];
  });
}

export function after({ removed, containedBy }: Partnership, operation: Operation): Partnership {
  const { by } = operation;
  switch (operation.act) {
    case "contain":
      return { removed, containedBy: [...containedBy, by] };
    case "restore":
      return { removed, containedBy: containedBy.filter((one) => one !== by) };
    case "rotate":
      return { removed, containedBy };
    case "remove":
      return { removed: operation.rooms, containedBy: [] };
    case "readmit":
      return PARTNERS;
  }
}

/** For people. */
export function titleOf(operation: Operation): string {
  const { act, by } = operation;
  if (operation.act === "remove") return `${by} removes (${operation.kind}, rooms: ${operation.rooms})`;
  return operation.act === "readmit" ? `${by} readmits (rooms: ${operation.rooms})` : `${by} ${act}s`;
}

/** Draws orders one after the other; each begins where the one before has ended. */
export class OrderGenerator {
  readonly #random: SeededRandom;
  #partnership: Partnership = PARTNERS;

  constructor(seed: number) {
    this.#random = new SeededRandom(seed);
  }

  /** @param seconds what the order may cost; an order has one operation at least */
  next(seconds: number): readonly Operation[] {
    const order: Operation[] = [];
    for (let left = seconds; ; ) {
      const fitting = possible(this.#partnership).filter(
        ({ act }) => order.length === 0 || COSTS[act] <= left,
      );
      if (fitting.length === 0) return order;
      // By its kind first, because most of the possible operations are removals.
      const act = this.#random.pick([...new Set(fitting.map((one) => one.act))]);
      const operation = this.#random.pick(fitting.filter((one) => one.act === act));
      order.push(operation);
      left -= COSTS[act];
      this.#partnership = after(this.#partnership, operation);
    }
  }
}
