// Looks for what was asked and answered in everything that a lab's programs keep or tell, where it must not
// be: files, metrics, notices, rows, and the pages of the bridges' databases on disk. PostgreSQL compresses
// long values, which puts a byte of its own between each eight of text it has not seen before; so every
// piece of eight bytes of a canary is looked for, not the whole.
// Invariant: a search that finds nothing where it must find something fails.
import assert from "node:assert/strict";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join, relative } from "node:path";
import { bridgeDatabaseName, synapseDatabaseName } from "../../lab/configuration/databases.ts";
import { COMPLETE_ORGANISATIONS, ORGANISATION_NAMES } from "../../lab/organisations.ts";
import type { Questions } from "./lab-questions.ts";
import type { LabSession } from "./lab-session.ts";

const PIECE_BYTES = 8;

/** The forms in which a canary could stand somewhere. */
function piecesOf(stem: string): Buffer[] {
  const raw = Array.from({ length: stem.length - PIECE_BYTES + 1 }, (_, at) =>
    stem.slice(at, at + PIECE_BYTES),
  );
  return raw.map((piece) => Buffer.from(piece));
}

/** How a canary looks in a dump, where bytes stand in hexadecimal, and in base64 of any offset. */
function formsOf(stem: string): Buffer[] {
  const base64 = [0, 1, 2].map((offset) => {
    const encoded = Buffer.from(" ".repeat(offset) + stem).toString("base64");
    return encoded.slice(4, -4);
  });
  return [...piecesOf(stem), Buffer.from(stem).subarray(0, PIECE_BYTES).toString("hex"), ...base64].map(
    (form) => Buffer.from(form),
  );
}

function holds(bytes: Buffer, needles: readonly Buffer[]): boolean {
  return needles.some((needle) => bytes.includes(needle));
}

function filesBelow(directory: string): string[] {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
}

/** Files below a folder that hold one of the needles, as paths relative to it; and how many were read. */
function search(directory: string, needles: readonly Buffer[], isExempt: (path: string) => boolean) {
  const paths = filesBelow(directory)
    .map((file) => relative(directory, file))
    .filter((path) => !isExempt(path));
  const found = paths.filter((path) => {
    const file = join(directory, path);
    // A file that its program has just removed holds nothing any more.
    return (statSync(file, { throwIfNoEntry: false })?.size ?? 0) > 0 && holds(readFileSync(file), needles);
  });
  return { found, searched: paths };
}

async function oidsOf(session: LabSession): Promise<ReadonlyMap<string, string>> {
  const rows = await session.administer<{ name: string; oid: string }>(
    "SELECT datname AS name, oid::text AS oid FROM pg_database",
  );
  return new Map(rows.map(({ name, oid }) => [name, oid]));
}

/** Every row of every table of a database, as text. */
async function dump(session: LabSession, database: string): Promise<{ tables: number; text: Buffer }> {
  const tables = await session.administer<{ name: string }>(
    "SELECT quote_ident(relname) AS name FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace",
    [],
    database,
  );
  const parts: string[] = [];
  for (const { name } of tables) {
    const rows = await session.administer<{ row: string }>(
      `SELECT t::text AS row FROM public.${name} t`,
      [],
      database,
    );
    parts.push(...rows.map(({ row }) => row));
  }
  return { tables: tables.length, text: Buffer.from(parts.join("\n")) };
}

/** What a program may keep of a conversation: the homeserver all of it, an agent its own tasks and documents. */
function isOwnMemory(path: string): boolean {
  return /^org-[abc]\/homeserver\/|^logs\/org-[abc]-homeserver\.log|^org-[ab]\/agent\/(?:tasks|documents)\/|^postgres\//.test(
    path,
  );
}

/** Nothing of what was asked and answered stands where it must not. All questions must have ended. */
export async function assertNoTrace(session: LabSession, questions: Questions): Promise<void> {
  const needles = formsOf(questions.stem);
  const { directory } = session.lab.paths;

  const files = search(directory, needles, isOwnMemory);
  assert.deepEqual(files.found, []);
  const paths = COMPLETE_ORGANISATIONS.map((name) => session.lab.paths.organisation(name));
  for (const file of paths.flatMap((own) => [own.bridgeLog, own.auditFile, own.accessLog])) {
    assert.ok(files.searched.includes(relative(directory, file)) && statSync(file).size > 0, file);
  }
  // The agents' own records prove that the search finds what is there.
  assert.ok(search(directory, needles, (path) => !isOwnMemory(path)).found.length > 0);

  for (const organisation of COMPLETE_ORGANISATIONS) {
    assert.ok(!holds(Buffer.from(await session.metrics(organisation)), needles));
    const { tables, text } = await dump(session, bridgeDatabaseName(organisation));
    assert.ok(tables >= 14 && text.length > 1_000);
    assert.ok(!holds(text, needles), `a table of ${organisation}'s bridge holds a canary`);
    const rooms = new Map(
      questions.asked.map((question) => [`${question.room} ${question.ghost}`, question]),
    );
    for (const question of rooms.values()) {
      const notices = Buffer.from((await questions.noticesIn(question)).join("\n"));
      assert.ok(!holds(notices, needles), "a notice holds a canary");
    }
  }
  await assertNoPage(session, needles);
}

/** The server's whole data directory and log, the write-ahead log and the homeservers' databases aside. */
async function assertNoPage(session: LabSession, needles: readonly Buffer[]): Promise<void> {
  await session.administer("CHECKPOINT");
  const oids = await oidsOf(session);
  const homeservers = ORGANISATION_NAMES.map((name) => `data/base/${oids.get(synapseDatabaseName(name))}/`);
  const ofHomeserver = (path: string) => homeservers.some((folder) => path.startsWith(folder));
  const pages = search(
    session.postgresHome,
    needles,
    (path) => path.startsWith("data/pg_wal/") || ofHomeserver(path),
  );
  assert.deepEqual(pages.found, []);
  for (const organisation of COMPLETE_ORGANISATIONS) {
    const folder = `data/base/${oids.get(bridgeDatabaseName(organisation))}/`;
    assert.ok(pages.searched.filter((path) => path.startsWith(folder)).length > 100, folder);
  }
  // What the search can find in a homeserver's database it would have found in a bridge's.
  assert.ok(search(session.postgresHome, needles, (path) => !ofHomeserver(path)).found.length > 0);
}
