// Messages from one thread to another, several in one: what wakes the other thread costs more than a message.
// Invariants: messages leave in the order they were put in; one that is held leaves at the next `due`.

export class Outbox<Message> {
  readonly #post: (messages: readonly Message[]) => void;
  readonly #due: (flush: () => void) => void;
  #held: Message[] = [];

  /** @param due called with the first of those that are held; has to call `flush` some time later */
  constructor(post: (messages: readonly Message[]) => void, due: (flush: () => void) => void) {
    this.#post = post;
    this.#due = due;
  }

  put(message: Message): void {
    this.#held.push(message);
    if (this.#held.length === 1) this.#due(() => this.flush());
  }

  /** Sends what is held. */
  flush(): void {
    if (this.#held.length === 0) return;
    const messages = this.#held;
    this.#held = [];
    this.#post(messages);
  }
}
