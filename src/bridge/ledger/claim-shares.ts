// How much of each agent, server or room one claim may still take of a process's slots.
// Invariant: no more than `size` are claimed at a time while `full` are left out, so whichever agents, servers or rooms they
// turn out to be of, none gets more than its share. Those with more than half of it in progress come last.

export interface Share<Key extends string> {
  readonly most: number;
  /** How much of it is kept for work that no other process can do. */
  readonly kept?: number;
  /** The key of each that is in progress. */
  readonly inProgress: readonly Key[];
}

export class Shares<Key extends string> {
  readonly #most: number;
  readonly #kept: number;
  readonly #inProgress = new Map<Key, number>();
  #size: number;

  /** @param share undefined: each may take everything */
  constructor(share: Share<Key> | undefined) {
    this.#most = share?.most ?? Number.POSITIVE_INFINITY;
    this.#kept = share?.kept ?? 0;
    for (const key of share?.inProgress ?? []) this.take(key);
    this.#size = Math.ceil(this.#most / 2);
  }

  get size(): number {
    return this.#size;
  }

  /** The keys of which fewer than `size` may be claimed. */
  get full(): Key[] {
    return [...this.#inProgress.keys()].filter((key) => this.#left(key) < this.#size);
  }

  /** The same for work that other processes can do as well. */
  get fullBeforeKept(): Key[] {
    return [...this.#inProgress.keys()].filter((key) => this.#left(key) - this.#kept < this.#size);
  }

  take(key: Key): void {
    this.#inProgress.set(key, (this.#inProgress.get(key) ?? 0) + 1);
  }

  /** Goes on with those that have less left; false when none has. */
  next(): boolean {
    const left = [...this.#inProgress.keys()].map((key) => this.#left(key));
    const less = [...left, ...left.map((one) => one - this.#kept)].filter((one) => one < this.#size);
    this.#size = Math.max(0, ...less);
    return this.#size > 0;
  }

  #left(key: Key): number {
    return this.#most - (this.#inProgress.get(key) ?? 0);
  }
}

/** Claims up to `limit`, and of none more than its share. @param claim claims so many, and nothing of what is full */
export async function claimInShares<Key extends string, Row>(
  { limit, share }: { readonly limit: number; readonly share?: Share<Key> | undefined },
  claim: (most: number, full: readonly Key[]) => Promise<readonly Row[]>,
  keyOf: (row: Row) => Key | undefined,
): Promise<Row[]> {
  const shares = new Shares(share);
  const claimed: Row[] = [];
  for (;;) {
    const most = Math.min(limit - claimed.length, shares.size);
    if (most === 0) return claimed;
    try {
      const found = await claim(most, shares.full);
      claimed.push(...found);
      for (const key of found.map(keyOf)) if (key !== undefined) shares.take(key);
      if (found.length < most && !shares.next()) return claimed;
    } catch (error) {
      // What was claimed before is not to wait for the end of its lease.
      if (claimed.length === 0) throw error;
      return claimed;
    }
  }
}
