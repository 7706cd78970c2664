// The real side of a run: the ledger on a database, the workers' claims, an agent that remembers what it was asked, and a
// homeserver that remembers what it was sent. And one call: made on the real ledger, then on the model, then compared.
// Invariants: after each call every table is compared with the model; an agent gets a message once, unless its worker has
// looked for the task first; a claim that was lost stays among the claims, so that its holder can still try to write.
import assert from "node:assert/strict";
import type { Pool } from "pg";
import type { ClaimedIntakeEnvelope } from "../../../src/bridge/ledger/intake-envelopes.ts";
import type { ClaimedDelegation } from "../../../src/bridge/ledger/leases.ts";
import type { ClaimedNotice } from "../../../src/bridge/ledger/notices.ts";
import { createOperations } from "../../../src/bridge/ledger/operator-commands.ts";
import type { ClaimedStatus } from "../../../src/bridge/ledger/statuses.ts";
import type { EventId, GhostMxid, RoomId, TransactionId } from "../../../src/domain/identifiers.ts";
import { ledgerOn, NOTICE_INTERVAL_MS, T0 } from "../ledger.ts";
import type { Arrival, Claim, Notice, Send } from "./entities.ts";
import { keyOf } from "./entities.ts";
import { type Fault, FaultyPool, type Planted } from "./faulty-pool.ts";
import type { LedgerModel } from "./model.ts";
import { assertSame, readTables, type Tables } from "./tables.ts";

/** An event that the homeserver has. */
interface SentEvent {
  readonly event: EventId;
  readonly transaction: TransactionId;
  readonly room: RoomId;
  readonly ghost: GhostMxid;
  readonly send: Send;
}

const CLEAR = `DELETE FROM bridge_statuses; DELETE FROM bridge_sends; DELETE FROM bridge_delegations;
  DELETE FROM bridge_encrypted_intake; DELETE FROM bridge_rooms; DELETE FROM bridge_audit; DELETE FROM bridge_notices;
  DELETE FROM bridge_handled_events; DELETE FROM bridge_limiter; DELETE FROM bridge_ghost_rooms;
  UPDATE bridge_capacity SET admitted = 0, counted_open = 0, counted_at_admitted = 0`;

export class World {
  now = T0;
  readonly model: LedgerModel;
  readonly ledger: ReturnType<typeof ledgerOn>["ledger"];
  readonly admit: ReturnType<typeof ledgerOn>["admit"];
  readonly claim: ReturnType<typeof ledgerOn>["claim"];
  readonly operations: ReturnType<typeof createOperations>;
  readonly claims: ClaimedDelegation[] = [];
  readonly envelopes: ClaimedIntakeEnvelope[] = [];
  readonly notices: { readonly claimed: ClaimedNotice; readonly notice: Notice }[] = [];
  readonly statuses: {
    readonly claimed: ClaimedStatus;
    readonly key: string;
    isAttempted?: boolean;
  }[] = [];
  readonly transactions: (readonly Arrival[])[] = [];
  readonly answers: { readonly key: string; readonly event: string }[] = [];
  readonly sent = new Map<string, SentEvent>();
  tables: Tables | undefined;
  readonly #pool: Pool;
  readonly #faults: FaultyPool;
  /** Messages that the agent got, and the claims under which it was called. */
  readonly #messages = new Set<string>();
  readonly #called = new Set<ClaimedDelegation>();
  #names = 0;

  constructor(pool: Pool, model: LedgerModel, gateMs: number, planted?: Planted) {
    this.model = model;
    this.#pool = pool;
    this.#faults = new FaultyPool(pool, planted);
    const fixture = ledgerOn(this.#faults.pool, gateMs);
    this.ledger = fixture.ledger;
    this.admit = fixture.admit;
    this.claim = fixture.claim;
    this.operations = createOperations(this.#faults.pool, NOTICE_INTERVAL_MS);
  }

  /** Empties the tables. @param rooms those in which `speaker` is joined */
  async clear(rooms: readonly string[], speaker: string): Promise<void> {
    await this.#pool.query(CLEAR);
    await this.#pool.query(
      "INSERT INTO bridge_ghost_rooms (room_id, ghost_mxid, membership) SELECT unnest($1::text[]), $2, 'join'",
      [rooms, speaker],
    );
  }

  /** The name of the next event. */
  name(): string {
    this.#names += 1;
    return `e${this.#names}`;
  }

  id(key: string): string {
    return this.tables?.ids?.[key] ?? "0";
  }

  async compare(): Promise<Tables> {
    this.tables = await readTables(this.#pool, this.now);
    assertSame(this.tables, this.model, this.now);
    return this.tables;
  }

  async read(): Promise<Tables> {
    return await readTables(this.#pool, this.now);
  }

  /**
   * Makes a call that may fail at a statement.
   * @returns its result or `lost`, and how the fault ended it
   */
  async attempt<T>(
    fault: Fault | undefined,
    call: () => Promise<T>,
  ): Promise<{ readonly value?: T | "lost"; readonly fired: Fault["kind"] | undefined }> {
    this.#faults.arm(fault);
    let failure: unknown;
    let value: T | "lost" | undefined;
    try {
      value = await call();
    } catch (error) {
      if ((error as { code?: string }).code === "lease_lost") value = "lost";
      else failure = error;
    }
    const fired = await this.#faults.disarm();
    if (fired === undefined && failure !== undefined) throw failure;
    return fired === undefined ? { value: value as T | "lost", fired } : { fired };
  }

  /**
   * Makes a call and the model's transition; both must have the same result. A call that was rolled back changes nothing,
   * and of one in doubt nobody knows the result.
   * @returns the result; undefined when the caller did not get it
   */
  async perform<T>(
    fault: Fault | undefined,
    call: () => Promise<T>,
    transition: () => T | "lost",
  ): Promise<T | "lost" | undefined> {
    const { value, fired } = await this.attempt(fault, call);
    if (fired === "rolled_back") return undefined;
    const expected = transition();
    if (fired === "in_doubt") return undefined;
    assert.deepEqual(value, expected);
    return value;
  }

  /** The agent is called: one that may have the message is asked for its task first. */
  callAgent(claimed: ClaimedDelegation): string {
    const { a2aMessageId: message, a2aUnsettled, a2aTaskId } = claimed;
    const isLookedFor = a2aUnsettled || this.#called.has(claimed);
    assert.ok(isLookedFor || !this.#messages.has(message), `the agent gets ${message} twice`);
    this.#messages.add(message);
    this.#called.add(claimed);
    return a2aTaskId ?? `task ${message}`;
  }

  /** Whether a worker knows that the agent has nothing of what it holds. */
  isUndelivered(claimed: ClaimedDelegation): boolean {
    return !claimed.a2aUnsettled && !this.#called.has(claimed);
  }
}

export const claimOf = ({ lease, sourceEventId, ghost }: ClaimedDelegation): Claim => ({
  key: keyOf(sourceEventId, ghost),
  holder: lease.holder,
  fence: Number(lease.fence),
});

export const envelopeClaim = ({ event, fence }: ClaimedIntakeEnvelope): Claim => ({
  key: event,
  holder: "",
  fence: Number(fence),
});
