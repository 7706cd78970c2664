// A pool in front of the real one that can fail at one statement, and that can change a statement's text.
// Invariants: what fails, fails in the server, so that a transaction is rolled back as a crash rolls it back; without an
// armed fault and without a planted mistake every statement goes to the server unchanged.
import type { Pool, PoolClient, QueryConfig } from "pg";

/** The `at`-th statement of a call fails; or its commit succeeds, and the caller does not learn that. */
export interface Fault {
  readonly kind: "rolled_back" | "in_doubt";
  readonly at: number;
}

/** Replaces a part of every statement that has it, or of the one with this name. */
export interface Planted {
  readonly statement?: string;
  readonly text: string;
  readonly by: string;
}

type Query = (config: QueryConfig | string) => Promise<unknown>;

export class FaultyPool {
  /** Stands for the real pool. */
  readonly pool: Pool;
  #planted: Planted | undefined;
  #armed: Fault | undefined;
  #statements = 0;
  #fired: "rolled_back" | "in_doubt" | undefined;
  readonly #underWay = new Set<Promise<unknown>>();

  constructor(real: Pool, planted?: Planted) {
    this.#planted = planted;
    const onPool: Query = (config) => this.#query((sent) => real.query(sent as string), config, false);
    const connect = async () => {
      const client = await real.connect();
      const query: Query = (config) => this.#query((sent) => client.query(sent as string), config, true);
      return { query, release: client.release.bind(client) } as unknown as PoolClient;
    };
    this.pool = { query: onPool, connect } as unknown as Pool;
  }

  arm(fault: Fault | undefined): void {
    this.#armed = fault;
    this.#statements = 0;
    this.#fired = undefined;
  }

  /**
   * Waits until every statement of the call has ended.
   * @returns how the armed fault ended the call; undefined when the call made too few statements
   */
  async disarm(): Promise<"rolled_back" | "in_doubt" | undefined> {
    while (this.#underWay.size > 0) await Promise.allSettled(this.#underWay);
    this.#armed = undefined;
    return this.#fired;
  }

  #query(send: Query, config: QueryConfig | string, isTransaction: boolean): Promise<unknown> {
    const answer = this.#answer(send, config, isTransaction);
    this.#underWay.add(answer);
    const ended = () => this.#underWay.delete(answer);
    answer.then(ended, ended);
    return answer;
  }

  async #answer(send: Query, config: QueryConfig | string, isTransaction: boolean): Promise<unknown> {
    const text = typeof config === "string" ? config : config.text;
    const fault = this.#armed;
    if (fault === undefined || text.startsWith("BEGIN") || text === "ROLLBACK")
      return send(this.#plant(config));
    this.#statements += 1;
    // A statement that only reads has nothing to commit.
    const commits = isTransaction ? text === "COMMIT" : !/^\s*SELECT/.test(text);
    if (fault.kind === "in_doubt" && commits && this.#fired === undefined) {
      this.#fired = "in_doubt";
      await send(this.#plant(config));
      throw new Error("the connection was lost after the statement");
    }
    if (fault.kind === "rolled_back" && this.#statements === fault.at) {
      this.#fired = "rolled_back";
      return await send("SELECT 1 / 0");
    }
    return await send(this.#plant(config));
  }

  #plant(config: QueryConfig | string): QueryConfig | string {
    const planted = this.#planted;
    if (planted === undefined || typeof config === "string") return config;
    if (config.name !== (planted.statement ?? config.name)) return config;
    const text = config.text.replaceAll(planted.text, planted.by);
    if (text === config.text) return config;
    // Without its name, under which the connection may have prepared it as it is, and would refuse it.
    const { name: _known, ...unnamed } = config;
    return { ...unnamed, text };
  }
}
