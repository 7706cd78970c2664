// Tokens lent by the homeserver for acting as local users, one a user.
// Invariants: at most one token a user is in use; every token is given back at the end, and the homeserver
// forgets it by itself soon after should this process be killed first.
import type { Clock } from "../../domain/clock.ts";
import type { UserId } from "../../domain/identifiers.ts";
import type { ActingUser } from "./acting-user.ts";
import type { HomeserverOperator } from "./operator.ts";

const LIFE_MS = 15 * 60_000;
const USED_MS = 10 * 60_000;

export class LentTokens {
  readonly #operator: HomeserverOperator;
  readonly #operatorId: UserId;
  readonly #clock: Clock;
  readonly #lent = new Map<
    UserId,
    { readonly since: number; readonly acting: Promise<ActingUser | undefined> }
  >();
  /** Users for whom the homeserver lends none. */
  readonly unusable = new Set<UserId>();

  constructor(operator: HomeserverOperator, operatorId: UserId, clock: Clock) {
    this.#operator = operator;
    this.#operatorId = operatorId;
    this.#clock = clock;
  }

  /** Acts as a user; undefined when the homeserver does not allow it. */
  async as(user: UserId): Promise<ActingUser | undefined> {
    if (user === this.#operatorId) return this.#operator.self(user);
    const now = this.#clock.now();
    const known = this.#lent.get(user);
    if (known !== undefined && now < known.since + USED_MS) return known.acting;
    const acting = this.#operator.actAs(user, now + LIFE_MS);
    this.#lent.set(user, { since: now, acting });
    const found = await acting;
    if (found === undefined) this.unusable.add(user);
    await (await known?.acting)?.logout();
    return found;
  }

  /** Acts as a user once, and gives the token back. */
  async once<T>(user: UserId, act: (acting: ActingUser) => Promise<T>): Promise<T | undefined> {
    if (user === this.#operatorId || this.#lent.has(user)) {
      const acting = await this.as(user);
      return acting === undefined ? undefined : act(acting);
    }
    const acting = await this.#operator.actAs(user, this.#clock.now() + LIFE_MS);
    if (acting === undefined) return undefined;
    try {
      return await act(acting);
    } finally {
      await acting.logout();
    }
  }

  /** Gives all tokens back. */
  async release(): Promise<void> {
    const lent = [...this.#lent.values()];
    this.#lent.clear();
    await Promise.allSettled(lent.map(async ({ acting }) => (await acting)?.logout()));
  }
}
