// Work that must not overlap, done one after the other in the order it was asked for.
// Invariant: work that fails does not hold up what comes after it.

export class Serial {
  #last: Promise<unknown> = Promise.resolve();

  /** Runs `work` when everything asked for before has ended. */
  run<T>(work: () => Promise<T>): Promise<T> {
    const result = this.#last.then(work);
    this.#last = result.catch(() => undefined);
    return result;
  }

  /** Resolves when everything asked for so far has ended. */
  async ended(): Promise<void> {
    await this.#last;
  }
}

/** The same for each key by itself; a key that nothing runs under is forgotten. */
export class KeyedSerial<Key> {
  readonly #last = new Map<Key, Promise<unknown>>();

  run<T>(key: Key, work: () => Promise<T>): Promise<T> {
    const result = (this.#last.get(key) ?? Promise.resolve()).then(work);
    const ended = result
      .catch(() => undefined)
      .then(() => {
        if (this.#last.get(key) === ended) this.#last.delete(key);
      });
    this.#last.set(key, ended);
    return result;
  }
}
