// How many delegations of each agent one claim may still take, so that an agent that does not answer takes only its
// share of a process's slots. Invariant: no more than `size` are claimed at a time while `full` are left out, so whichever
// agents they turn out to be of, none gets more than its share. Agents with less in progress come first.
import type { AgentId } from "../../domain/identifiers.ts";

/** The share of each agent, and what of it is in progress. */
export interface SharePerAgent {
  readonly most: number;
  readonly inProgress: ReadonlyMap<AgentId, number>;
}

export class AgentShares {
  readonly #most: number;
  readonly #inProgress: Map<AgentId, number>;
  #size: number;

  /** @param share undefined: an agent may take everything */
  constructor(share: SharePerAgent | undefined) {
    this.#most = share?.most ?? Number.POSITIVE_INFINITY;
    this.#inProgress = new Map(share?.inProgress);
    this.#size = this.#most;
  }

  /** How many may be claimed at a time of the agents that are not `full`. */
  get size(): number {
    return this.#size;
  }

  /** The agents of which fewer than `size` may be claimed. */
  get full(): AgentId[] {
    return [...this.#inProgress.keys()].filter((agent) => this.#left(agent) < this.#size);
  }

  take(agent: AgentId): void {
    this.#inProgress.set(agent, (this.#inProgress.get(agent) ?? 0) + 1);
  }

  /** Goes on with the agents that have less left; false when nobody has. */
  next(): boolean {
    const left = this.full.map((agent) => this.#left(agent));
    this.#size = Math.max(0, ...left);
    return this.#size > 0;
  }

  #left(agent: AgentId): number {
    return this.#most - (this.#inProgress.get(agent) ?? 0);
  }
}
