// The databases of a lab: one for every Synapse and every bridge, each owned by a role of its own.
// Invariant: what exists is kept; a role's password is the one in its owner's folder.
import pg from "pg";
import type { Random } from "../../src/domain/clock.ts";
import { readIfPresent } from "../../src/runtime/write-file.ts";
import { keepSecret, randomSecret } from "../files.ts";
import type { Lab } from "../lab.ts";
import {
  COMPLETE_ORGANISATIONS,
  type CompleteOrganisation,
  isComplete,
  type OrganisationName,
} from "../organisations.ts";

export interface OwnedDatabase {
  /** Name of the database and of the role that owns it. */
  readonly name: string;
  readonly password: string;
  /** A role that may only read it; none where nobody counts in it. */
  readonly reader?: { readonly name: string; readonly password: string };
}

export function synapseDatabaseName(organisation: OrganisationName): string {
  return `${organisation.replace("-", "_")}_synapse`;
}

export function bridgeDatabaseName(organisation: CompleteOrganisation): string {
  return `${organisation.replace("-", "_")}_bridge`;
}

function bridgePasswordFile(lab: Lab, organisation: CompleteOrganisation): string {
  return lab.paths.organisation(organisation).bridgeSecret("database-password");
}

/** The password of a Synapse's role, made if need be. */
export function synapseDatabasePassword(
  lab: Lab,
  organisation: OrganisationName,
  random: Random,
): Promise<string> {
  return keepSecret(lab.paths.organisation(organisation).databasePassword, () => randomSecret(random));
}

/** The URL under which a bridge reaches its database: a secret. */
export async function bridgeDatabaseUrl(
  lab: Lab,
  organisation: CompleteOrganisation,
  random: Random,
): Promise<string> {
  const password = await keepSecret(bridgePasswordFile(lab, organisation), () => randomSecret(random));
  const name = bridgeDatabaseName(organisation);
  return `postgres://${name}:${password}@127.0.0.1:${lab.ports.postgres}/${name}`;
}

function readerPasswordFile(lab: Lab, organisation: OrganisationName): string {
  return `${lab.paths.organisation(organisation).databaseUrl}-password`;
}

/** The URL under which a homeserver's database is read by who may not write it: a secret. */
export async function readerDatabaseUrl(
  lab: Lab,
  organisation: CompleteOrganisation,
  random: Random,
): Promise<string> {
  const password = await keepSecret(readerPasswordFile(lab, organisation), () => randomSecret(random));
  const name = synapseDatabaseName(organisation);
  return `postgres://${readerName(name)}:${password}@127.0.0.1:${lab.ports.postgres}/${name}`;
}

function readerName(database: string): string {
  return `${database}_reader`;
}

/** All databases of a lab that was provisioned. */
export function databasesOf(lab: Lab): OwnedDatabase[] {
  const entry = (name: string, file: string) => ({ name, password: (readIfPresent(file) ?? "").trim() });
  return [
    ...lab.organisations.map((organisation) => {
      const name = synapseDatabaseName(organisation);
      const database = entry(name, lab.paths.organisation(organisation).databasePassword);
      if (!isComplete(organisation)) return database;
      return { ...database, reader: entry(readerName(name), readerPasswordFile(lab, organisation)) };
    }),
    ...COMPLETE_ORGANISATIONS.map((organisation) =>
      entry(bridgeDatabaseName(organisation), bridgePasswordFile(lab, organisation)),
    ),
  ];
}

/** Creates the databases that do not exist yet. */
export async function createDatabases(adminUrl: string, databases: readonly OwnedDatabase[]): Promise<void> {
  const admin = new pg.Client({ connectionString: adminUrl });
  await admin.connect();
  try {
    const { rows } = await admin.query<{ name: string }>("SELECT datname AS name FROM pg_database");
    const existing = new Set(rows.map((row) => row.name));
    for (const { name, password } of databases) {
      if (existing.has(name)) continue;
      // A utility statement takes no parameters, so name and password are quoted here.
      const role = admin.escapeIdentifier(name);
      await admin.query(`DROP ROLE IF EXISTS ${role}`);
      await admin.query(`CREATE ROLE ${role} LOGIN PASSWORD ${admin.escapeLiteral(password)}`);
      // Synapse refuses any other collation than C.
      await admin.query(
        `CREATE DATABASE ${role} OWNER ${role} TEMPLATE template0
           ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'`,
      );
    }
  } finally {
    await admin.end();
  }
  for (const { name, reader } of databases) {
    if (reader !== undefined) await admitReader(adminUrl, name, reader);
  }
}

/** The role can read what the owner has made, and what it will make. */
async function admitReader(
  adminUrl: string,
  database: string,
  reader: { readonly name: string; readonly password: string },
): Promise<void> {
  const url = new URL(adminUrl);
  url.pathname = `/${database}`;
  const admin = new pg.Client({ connectionString: url.href });
  await admin.connect();
  try {
    const [role, owner] = [admin.escapeIdentifier(reader.name), admin.escapeIdentifier(database)];
    const known = await admin.query("SELECT 1 FROM pg_roles WHERE rolname = $1", [reader.name]);
    if (known.rowCount === 0) await admin.query(`CREATE ROLE ${role} LOGIN`);
    await admin.query(`ALTER ROLE ${role} PASSWORD ${admin.escapeLiteral(reader.password)}`);
    await admin.query(`GRANT SELECT ON ALL TABLES IN SCHEMA public TO ${role}`);
    await admin.query(
      `ALTER DEFAULT PRIVILEGES FOR ROLE ${owner} IN SCHEMA public GRANT SELECT ON TABLES TO ${role}`,
    );
  } finally {
    await admin.end();
  }
}
