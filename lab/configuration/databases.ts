// The databases of a lab: one for every Synapse and every bridge, each owned by a role of its own.
// Invariant: what exists is kept; a role's password is the one in its owner's folder.
import pg from "pg";
import { readIfPresent } from "../../src/runtime/write-file.ts";
import { keepSecret } from "../files.ts";
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
  /** A role that may only read it, where federation control counts in it. */
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

function readerPasswordFile(lab: Lab, organisation: OrganisationName): string {
  return `${lab.paths.organisation(organisation).databaseUrl}-password`;
}

function readerName(database: string): string {
  return `${database}_reader`;
}

/** The password of a Synapse's role, made if need be. */
export function synapseDatabasePassword(lab: Lab, organisation: OrganisationName): Promise<string> {
  return keepSecret(lab.paths.organisation(organisation).databasePassword);
}

/** The URL under which a bridge reaches its database: a secret. */
export function bridgeDatabaseUrl(lab: Lab, organisation: CompleteOrganisation): Promise<string> {
  const name = bridgeDatabaseName(organisation);
  return databaseUrl(lab, name, name, bridgePasswordFile(lab, organisation));
}

/** The URL under which federation control reads a homeserver's database, by a role that may not write: a secret. */
export function readerDatabaseUrl(lab: Lab, organisation: CompleteOrganisation): Promise<string> {
  const name = synapseDatabaseName(organisation);
  return databaseUrl(lab, name, readerName(name), readerPasswordFile(lab, organisation));
}

async function databaseUrl(lab: Lab, name: string, role: string, passwordFile: string): Promise<string> {
  return `postgres://${role}:${await keepSecret(passwordFile)}@127.0.0.1:${lab.ports.postgres}/${name}`;
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
  await asAdmin(adminUrl, async (admin) => {
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
  });
  for (const { name, reader } of databases) {
    if (reader !== undefined) await admitReader(adminUrl, name, reader);
  }
}

/** Lets the role read the tables that the owner has made and those that it will make. */
async function admitReader(
  adminUrl: string,
  database: string,
  reader: { readonly name: string; readonly password: string },
): Promise<void> {
  const url = new URL(adminUrl);
  url.pathname = `/${database}`;
  await asAdmin(url.href, async (admin) => {
    const [role, owner] = [admin.escapeIdentifier(reader.name), admin.escapeIdentifier(database)];
    const known = await admin.query("SELECT 1 FROM pg_roles WHERE rolname = $1", [reader.name]);
    if (known.rowCount === 0) await admin.query(`CREATE ROLE ${role} LOGIN`);
    await admin.query(`ALTER ROLE ${role} PASSWORD ${admin.escapeLiteral(reader.password)}`);
    await admin.query(`GRANT SELECT ON ALL TABLES IN SCHEMA public TO ${role}`);
    await admin.query(
      `ALTER DEFAULT PRIVILEGES FOR ROLE ${owner} IN SCHEMA public GRANT SELECT ON TABLES TO ${role}`,
    );
  });
}

async function asAdmin(url: string, work: (admin: pg.Client) => Promise<void>): Promise<void> {
  const admin = new pg.Client({ connectionString: url });
  await admin.connect();
  try {
    await work(admin);
  } finally {
    await admin.end();
  }
}
