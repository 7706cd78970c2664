// Questions asked in a lab's rooms by a person's own client, and their outcome in the room, in the bridge's
// ledger and at the agent; and a search for their text in everything that must not keep it.
// Every question carries a canary, and so does every answer. PostgreSQL compresses long values and puts a
// byte between each eight of new text, so every eight bytes of a canary are searched for.
// Invariant: a search that finds nothing where it must find something fails.
import assert from "node:assert/strict";
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { bridgeDatabaseName, synapseDatabaseName } from "../../lab/configuration/databases.ts";
import { ghostFor } from "../../lab/endpoints.ts";
import type { MatrixUser, RoomEvent } from "../../lab/matrix-user.ts";
import {
  COMPLETE_ORGANISATIONS,
  type CompleteOrganisation,
  ORGANISATION_NAMES,
  partnerOf,
} from "../../lab/organisations.ts";
import { personOf } from "../../lab/seed/seed-file.ts";
import { a2aMessageId } from "../../src/bridge/ledger/prompts.ts";
import { isFor, transactionIdIn } from "../../src/bridge/ledger/transaction-ids.ts";
import { systemClock, systemRandom } from "../../src/domain/clock.ts";
import type { EventId, GhostMxid, RoomId } from "../../src/domain/identifiers.ts";
import { databaseText } from "./database.ts";
import { eventually, type LabSession } from "./lab-session.ts";

/** Whether an event is the status message of a question that takes long, or an edit of it: it is no notice. */
export function isStatus(content: RoomEvent["content"]): boolean {
  const id = transactionIdIn(content);
  return id !== undefined && isFor(id, "progress");
}

export interface Question {
  /** Whose bridge carries it. */
  readonly organisation: CompleteOrganisation;
  /** Whose agent is asked. */
  readonly publisher: CompleteOrganisation;
  readonly asker: MatrixUser;
  readonly ghost: GhostMxid;
  readonly room: RoomId;
  readonly event: EventId;
}

/** A row of bridge_delegations. */
export interface DelegationRow {
  readonly id: string;
  readonly matrix_event_id: string;
  readonly state: string;
  readonly terminal_stage: string | null;
  readonly terminal_reason: string | null;
  readonly a2a_attempted: boolean;
  readonly ghost_mxid: string;
  readonly attempts: number;
  readonly accepted_at: Date | null;
  readonly reply_event_id: string | null;
}

const TERMINAL = new Set(["completed", "failed", "canceled", "denied", "expired"]);
const STEM_LETTERS = "ghjkmnpqrstvwxyz";
const TOPIC = "When is the lamp of the old lighthouse lit?";

export class Questions {
  /** In all canaries of this lab. Random, and of letters that no hexadecimal text has. */
  readonly stem =
    `7${[...systemRandom.bytes(20)].map((byte) => STEM_LETTERS[byte % STEM_LETTERS.length]).join("")}`;
  readonly asked: Question[] = [];
  readonly #session: LabSession;

  constructor(session: LabSession) {
    this.#session = session;
  }

  canary(): string {
    return `${this.stem}${systemRandom.bytes(8).toString("hex")}`;
  }

  /** Puts documents that answer the questions into the agents' folders. */
  async plant(documents: Readonly<Record<string, string>> = {}): Promise<void> {
    const lighthouse = `# Lighthouse\n\nThe lamp of the old lighthouse is lit at dusk. ${this.canary()}\n`;
    for (const organisation of COMPLETE_ORGANISATIONS) {
      const folder = this.#session.lab.paths.organisation(organisation).agentDocuments;
      for (const [name, text] of Object.entries({ ...documents, "lighthouse.md": lighthouse })) {
        writeFileSync(join(folder, name), text);
      }
    }
    await Promise.all(COMPLETE_ORGANISATIONS.map((name) => this.#session.unit("restart", `${name}/agent`)));
  }

  personOf(organisation: CompleteOrganisation): MatrixUser {
    return personOf(this.#session.lab, this.#session.seed, organisation, {
      clock: systemClock,
      random: systemRandom,
    });
  }

  ghostOf(organisation: CompleteOrganisation, publisher = partnerOf(organisation)): GhostMxid {
    return ghostFor(this.#session.lab, organisation, publisher);
  }

  /** Rooms of an organisation's person with the ghost of the partner's agent. */
  rooms(count: number, organisation: CompleteOrganisation, publisher = partnerOf(organisation)) {
    const person = this.personOf(organisation);
    const ghost = this.ghostOf(organisation, publisher);
    return Promise.all(
      Array.from({ length: count }, async () => {
        const room = await person.createRoom({ preset: "private_chat", invite: [ghost] });
        await eventually("the ghost joins", async () => (await person.members(room)).includes(ghost));
        return room;
      }),
    );
  }

  /** Asks once in each of these rooms, by mention. */
  async ask(
    rooms: readonly RoomId[],
    organisation: CompleteOrganisation,
    options: { publisher?: CompleteOrganisation; asker?: MatrixUser; text?: string } = {},
  ): Promise<Question[]> {
    const {
      publisher = partnerOf(organisation),
      asker = this.personOf(organisation),
      text = TOPIC,
    } = options;
    const ghost = this.ghostOf(organisation, publisher);
    const questions = await Promise.all(
      rooms.map(async (room) => {
        const body = `${ghost}: ${text} ${this.canary()}`;
        const content = { msgtype: "m.text", body, "m.mentions": { user_ids: [ghost] } };
        const event = await asker.send(room, content);
        return { organisation, publisher, asker, ghost, room, event };
      }),
    );
    this.asked.push(...questions);
    return questions;
  }

  /** The ledger's row of each question, in order; undefined where it has none yet. */
  async rowsOf(questions: readonly Question[]): Promise<(DelegationRow | undefined)[]> {
    const rows = new Map<string, DelegationRow>();
    for (const organisation of COMPLETE_ORGANISATIONS) {
      const own = questions.filter((question) => question.organisation === organisation);
      if (own.length === 0) continue;
      const found = await this.#session.rows<DelegationRow>(
        organisation,
        "SELECT * FROM bridge_delegations WHERE matrix_event_id = ANY ($1)",
        [own.map(({ event }) => event)],
      );
      for (const row of found) {
        assert.ok(!rows.has(row.matrix_event_id), "a question has two rows");
        rows.set(row.matrix_event_id, row);
      }
    }
    return questions.map(({ event }) => rows.get(event));
  }

  /** Waits until every question has a row of which `isSo` holds. */
  async until(what: string, questions: readonly Question[], isSo: (row: DelegationRow) => boolean) {
    return await eventually(what, async () => {
      const rows = await this.rowsOf(questions);
      const known = rows.filter((row) => row !== undefined);
      return known.length === rows.length && known.every(isSo) && known;
    });
  }

  /** Waits until all have ended. */
  ended(questions: readonly Question[]): Promise<DelegationRow[]> {
    return this.until("all questions have ended", questions, ({ state }) => TERMINAL.has(state));
  }

  /** What the ghost said to a question, oldest first, as the asker's homeserver tells it. */
  async repliesTo(question: Question, msgtype: "m.text" | "m.notice" = "m.text"): Promise<RoomEvent[]> {
    const events = await timeline(question.asker, question.room);
    return events.filter(
      ({ sender, type, content }) =>
        sender === question.ghost &&
        type === "m.room.message" &&
        content["msgtype"] === msgtype &&
        !isStatus(content) &&
        inReplyTo(content) === question.event,
    );
  }

  /** The bodies of what a ghost said in a room by notices. */
  async noticesIn({ asker, room, ghost }: Pick<Question, "asker" | "room" | "ghost">): Promise<string[]> {
    return (await timeline(asker, room))
      .filter(
        ({ sender, content }) => sender === ghost && content["msgtype"] === "m.notice" && !isStatus(content),
      )
      .map(({ content }) => String(content["body"]));
  }

  /** Tasks that the agent made of a question, by the bridge's `messageId`. */
  tasksOf({ publisher }: Question, row: DelegationRow): readonly string[] {
    const folder = join(this.#session.lab.paths.organisation(publisher).agent, "tasks");
    return readdirSync(folder)
      .filter((name) => name.endsWith(".json"))
      .map((name) => readFileSync(join(folder, name), "utf8"))
      .filter((text) => text.includes(a2aMessageId(row.matrix_event_id, row.ghost_mxid)));
  }

  /** Every question is answered, by one event in its room, and the agent has one task of it. */
  async answeredOnce(questions: readonly Question[]): Promise<DelegationRow[]> {
    const rows = await this.ended(questions);
    for (const [index, row] of rows.entries()) {
      const question = questions[index];
      assert.ok(question !== undefined);
      assert.deepEqual([row.state, row.terminal_reason], ["completed", "answered"]);
      const replies = await this.repliesTo(question);
      assert.deepEqual(
        replies.map((reply) => reply.event_id),
        [row.reply_event_id],
      );
      assert.match(String(replies[0]?.content["body"]), new RegExp(`lit at dusk\\. ${this.stem}`));
      assert.equal(this.tasksOf(question, row).length, 1);
    }
    return rows;
  }

  /** Every question has ended without an answer, and one notice to it says why. */
  async refusedWithNotice(questions: readonly Question[], notice: RegExp): Promise<DelegationRow[]> {
    const rows = await this.ended(questions);
    for (const question of questions) {
      const said = await eventually("the notice is in the room", async () => {
        const notices = await this.repliesTo(question, "m.notice");
        return notices.length > 0 && notices;
      });
      assert.deepEqual(said.length, 1);
      assert.match(String(said[0]?.content["body"]), notice);
      assert.deepEqual(await this.repliesTo(question), []);
    }
    return rows;
  }
}

function inReplyTo(content: RoomEvent["content"]): unknown {
  const relation = content["m.relates_to"] as { "m.in_reply_to"?: { event_id?: unknown } } | undefined;
  return relation?.["m.in_reply_to"]?.event_id;
}

/** All events of a room that a person can see, oldest first. */
export async function timeline(person: MatrixUser, room: RoomId): Promise<RoomEvent[]> {
  const events: RoomEvent[] = [];
  let from = "";
  do {
    const body = await person.call(
      "GET",
      `/rooms/${encodeURIComponent(room)}/messages?dir=b&limit=500${from}`,
    );
    events.push(...(body["chunk"] as RoomEvent[]));
    from = typeof body["end"] === "string" ? `&from=${encodeURIComponent(body["end"])}` : "";
  } while (from !== "");
  return events.reverse();
}

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
  const tables = await databaseText((query) => session.administer(query, [], database));
  return { tables: tables.size, text: Buffer.from([...tables.values()].join("\n")) };
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
