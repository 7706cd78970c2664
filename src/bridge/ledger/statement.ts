// How the ledger speaks SQL: named (prepared once a connection), with rows typed at the edge.
import type { Pool, PoolClient, QueryResultRow } from "pg";
import { DrawbridgeError } from "../../domain/errors.ts";
import type { Lease } from "./types.ts";

/** A pool, or the one connection of an open transaction. */
export type Queryable = Pick<Pool | PoolClient, "query">;

/** A statement with a name, under which each connection prepares it once. */
export interface Statement {
  readonly name: string;
  readonly text: string;
}

export async function rows<Row extends QueryResultRow>(
  on: Queryable,
  statement: Statement,
  values: readonly unknown[],
): Promise<Row[]> {
  const result = await on.query<Row>({ ...statement, values: [...values] });
  return result.rows;
}

/** For a statement that always yields exactly one row. */
export async function oneRow<Row extends QueryResultRow>(
  on: Queryable,
  statement: Statement,
  values: readonly unknown[],
): Promise<Row> {
  const [row] = await rows<Row>(on, statement, values);
  if (row === undefined) throw new DrawbridgeError("internal", `statement ${statement.name} yielded no row`);
  return row;
}

/** A holder's write touched no row: the right to it has passed to another, or the row is terminal. */
export function noLongerHeld(what: string): DrawbridgeError {
  return new DrawbridgeError("lease_lost", `${what} is no longer held by this process`, {
    hint: "Nothing: whoever holds it now goes on with it.",
  });
}

export function leaseLost(lease: Lease): DrawbridgeError {
  return noLongerHeld(`delegation ${lease.delegationId}`);
}

/** Asserts that a transition touched exactly its row. */
export function assertHeld(touched: number, lease: Lease): void {
  if (touched !== 1) throw leaseLost(lease);
}

export const toTime = (epochMs: number): Date => new Date(epochMs);
export const toEpochMs = (time: Date): number => time.getTime();
