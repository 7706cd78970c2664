// The databases of a lab: one for every Synapse and every bridge, each owned by a role of its own.
// Invariant: what exists is kept; a role's password is the one in its owner's folder.
import pg from "pg";
import { readIfPresent } from "../../src/runtime/write-file.ts";
import { keepSecret } from "../files.ts";
import type { Lab } from "../lab.ts";
import {
  COMPLETE_ORGANISATIONS,
  type CompleteOrganisation,
  type OrganisationName,
} from "../organisations.ts";

export interface OwnedDatabase {
  /** Name of the database and of the role that owns it. */
  readonly name: string;
  readonly password: string;
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
export function synapseDatabasePassword(lab: Lab, organisation: OrganisationName): Promise<string> {
  return keepSecret(lab.paths.organisation(organisation).databasePassword);
}

/** The URL under which a bridge reaches its database: a secret. */
export async function bridgeDatabaseUrl(lab: Lab, organisation: CompleteOrganisation): Promise<string> {
  const name = bridgeDatabaseName(organisation);
  const password = await keepSecret(bridgePasswordFile(lab, organisation));
  return `postgres://${name}:${password}@127.0.0.1:${lab.ports.postgres}/${name}`;
}

/** All databases of a lab that was provisioned. */
export function databasesOf(lab: Lab): OwnedDatabase[] {
  const entry = (name: string, file: string) => ({ name, password: (readIfPresent(file) ?? "").trim() });
  return [
    ...lab.organisations.map((organisation) => {
      const { databasePassword } = lab.paths.organisation(organisation);
      return entry(synapseDatabaseName(organisation), databasePassword);
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
