// The migrated database of which the tests' are clones, and a clone made like it again, which costs a tenth of a new one.
// Invariants: a restored clone has the rows, the next values and the schema of its template; one is not restored, and
// says so, where a test has changed the schema, gathered statistics, or filled more than a few pages.
import type { Pool } from "pg";
import { migrate } from "../../src/bridge/ledger/migrate.ts";

/** Deleted rows take room until they are vacuumed, and plans are made for tables of that size. */
const FILLED_BYTES_MAX = 1024 * 1024;

/** What each clone has beside its tables, in a schema of its own. */
const OWN = `
  CREATE SCHEMA template;
  CREATE TABLE template.schema_changes ();
  CREATE FUNCTION template.note_schema_change() RETURNS event_trigger LANGUAGE plpgsql AS $$
    BEGIN INSERT INTO template.schema_changes DEFAULT VALUES; END $$;`;

interface Names {
  readonly name: string;
}

/** Migrates an empty database and adds template.restore(), which is true where the clone is like its template again. */
export async function makeTemplate(pool: Pool): Promise<void> {
  await migrate(pool);
  await pool.query(OWN);
  // What refers to a table was made after it.
  const { rows: tables } = await pool.query<Names>(
    `SELECT quote_ident(relname) AS name FROM pg_class
     WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY oid DESC`,
  );
  const { rows: sequences } = await pool.query<Names>(
    `SELECT quote_literal(quote_ident(sequencename)) AS name FROM pg_sequences
     WHERE schemaname = 'public' AND last_value IS NULL`,
  );
  const fill: string[] = [];
  for (const { name } of tables) {
    const text = `SELECT quote_literal(jsonb_agg(t)) AS rows FROM public.${name} t HAVING count(*) > 0`;
    for (const { rows } of (await pool.query<{ rows: string }>(text)).rows) {
      fill.unshift(
        `INSERT INTO public.${name} SELECT * FROM jsonb_populate_recordset(NULL::public.${name}, ${rows});`,
      );
    }
  }
  await pool.query(`
    CREATE FUNCTION template.restore() RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
      IF EXISTS (SELECT FROM template.schema_changes)
        OR EXISTS (SELECT FROM pg_statistic s JOIN pg_class c ON c.oid = s.starelid WHERE c.relnamespace = 'public'::regnamespace)
        OR (SELECT sum(pg_relation_size(oid)) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r') > ${FILLED_BYTES_MAX}
      THEN RETURN false; END IF;
      ${tables.map(({ name }) => `DELETE FROM public.${name};`).join(" ")}
      ${fill.join(" ")}
      ${sequences.map(({ name }) => `PERFORM setval(${name}, 1, false);`).join(" ")}
      RETURN true;
    END $$;
    CREATE EVENT TRIGGER schema_changes ON ddl_command_end EXECUTE FUNCTION template.note_schema_change()`);
}
