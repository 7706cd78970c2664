// Everything that a database holds, as text in which planted content can be searched for.
// Invariant: what is stored in binary columns is searched as it was before it was encoded: as bytes, and records of
// cryptographic stores as their keys and values.
import { deserialize } from "node:v8";
import type { QueryResultRow } from "pg";
import { decodeStringKey } from "../../src/bridge/crypto/idb-keys.ts";

/** Runs a query on the database. */
export type Query = <Row extends QueryResultRow>(text: string) => Promise<readonly Row[]>;

/** Characters are those of Latin 1, so that bytes can be found in it. */
function binaryText(bytes: Buffer): string {
  const forms = [bytes.toString("latin1"), bytes.toString("utf8")];
  const decoders = [(): unknown => deserialize(bytes), () => decodeStringKey(bytes)];
  for (const decode of decoders) {
    try {
      forms.push(JSON.stringify(decode()));
    } catch {
      // It is something else.
    }
  }
  return forms.join("\n");
}

const cellText = (cell: unknown): string => (Buffer.isBuffer(cell) ? binaryText(cell) : JSON.stringify(cell));

/** The text of each table, by its name. */
export async function databaseText(query: Query): Promise<ReadonlyMap<string, string>> {
  const tables = await query<{ name: string }>(
    "SELECT quote_ident(relname) AS name FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace",
  );
  const texts = new Map<string, string>();
  for (const { name } of tables) {
    // As one text too, in which bytes are hexadecimal.
    const rows = await query<{ all_columns: string }>(
      `SELECT t::text AS all_columns, t.* FROM public.${name} t`,
    );
    texts.set(name, rows.map((row) => Object.values(row).map(cellText).join(" ")).join("\n"));
  }
  return texts;
}
