// What was done to rooms because of one partner, and their state before: one file a partner, a JSON line an entry.
// Invariants: an entry is flushed to disk before the act that it announces; the state before is never overwritten; a
// last line that was cut off by a crash is dropped, and any other that cannot be read stays; nothing here is content.
import { existsSync, mkdirSync } from "node:fs";
import { type FileHandle, open, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import * as z from "zod";
import { DrawbridgeError } from "../../../domain/errors.ts";
import { type EventId, parseServerName, type RoomId, type UserId } from "../../../domain/identifiers.ts";
import { parseJson } from "../../../domain/json.ts";
import { Batches } from "../../../runtime/concurrency.ts";
import { flushFolder, PRIVATE, readIfPresent, writeWhole } from "../../../runtime/write-file.ts";
import type { OutOfReach } from "../plane.ts";
import { ServerAcl } from "./acl.ts";
import type { ClosingPartner } from "./render.ts";
import { ROOM_REASONS } from "./room-reasons.ts";
import type { Presence } from "./room-state.ts";

const branded = <T extends string>() => z.string().transform((value) => value as T);
const Room = branded<RoomId>();
const User = branded<UserId>();
const Event = branded<EventId>();
const Users = z.array(User);
const Level = z.number();
const Levels = z.strictObject({ events_default: Level.nullable(), events: z.record(z.string(), Level) });
const Before = z.enum(["join", "invite", "knock", "leave"]);
const Presences = z.array(z.strictObject({ user: User, before: Before }));
const Ending = z.enum(["retired", "left", "replaced"]);

const entry = <Act extends string, Fields extends z.ZodRawShape>(act: Act, fields: Fields) =>
  z.strictObject({ act: z.literal(act), room: Room, ...fields });

const Entry = z.discriminatedUnion("act", [
  /** The invite level is about to be raised; `before` is null where none was written. */
  entry("invite_level", { before: Level.nullable(), level: Level }),
  entry("bans", { actor: User, users: Presences }),
  entry("banned", { user: User, event: Event }),
  /** The ACL is about to be set; `before` is null where there was none. */
  entry("acl", { before: ServerAcl.nullable() }),
  entry("read_only", { before: Levels, level: Level }),
  /** The room is about to be replaced. `creator` will make the new one; null: nobody is left to move. */
  entry("replace", { creator: User.nullable(), users: Presences.default([]) }),
  entry("replacement", { to: Room, aliases: z.array(z.string()), members: Users, invited: Users }),
  /** Nobody of ours is in the room any more, and it is blocked here; of one that is retired: that is about to be so. */
  entry("gone", { how: Ending, purged: z.boolean(), moved: z.int(), invited: z.int() }),
  /** This user was invited again by a restore, or into a new room, or was refused: the passes that follow go on with others. */
  entry("invited_again", { user: User }),
  /** The partner was removed for good since: nobody of it is invited again. */
  entry("removed", {}),
  entry("lifted", {}),
]);
export type JournalEntry = z.output<typeof Entry>;
type EntryOf<Act extends JournalEntry["act"]> = Extract<JournalEntry, { act: Act }>;

export interface BanRecord {
  readonly before: Presence;
  /** Undefined when a crash came between the ban and its entry; then the user who was to ban identifies it. */
  readonly event: EventId | undefined;
  readonly actor: UserId;
}

export interface RoomRecord {
  readonly room: RoomId;
  readonly invite?: EntryOf<"invite_level">;
  readonly bans: ReadonlyMap<UserId, BanRecord>;
  readonly acl?: EntryOf<"acl">;
  readonly readOnly?: EntryOf<"read_only">;
  readonly replace?: EntryOf<"replace">;
  readonly replacement?: EntryOf<"replacement">;
  readonly gone?: EntryOf<"gone">;
  readonly invitedAgain?: ReadonlySet<UserId>;
  readonly removed?: true;
}

export function foldEntry(known: RoomRecord | undefined, entry: JournalEntry): RoomRecord | undefined {
  const record: RoomRecord = known ?? { room: entry.room, bans: new Map() };
  switch (entry.act) {
    case "invite_level":
      return { ...record, invite: { ...entry, before: (record.invite ?? entry).before } };
    case "bans": {
      const { actor, users } = entry;
      const bans = new Map(record.bans);
      for (const { user, before } of users)
        bans.set(user, { before: bans.get(user)?.before ?? before, event: undefined, actor });
      return { ...record, bans, invitedAgain: new Set() };
    }
    case "banned": {
      const { user, event } = entry;
      const ban = record.bans.get(user);
      if (ban === undefined) return record;
      return { ...record, bans: new Map(record.bans).set(user, { ...ban, event }) };
    }
    case "acl":
      return { ...record, acl: record.acl ?? entry };
    case "read_only":
      return { ...record, readOnly: { ...entry, before: (record.readOnly ?? entry).before } };
    case "replace":
      return { ...record, replace: record.replace ?? entry, invitedAgain: new Set() };
    case "replacement":
      return { ...record, replacement: entry, invitedAgain: new Set() };
    case "gone":
      return { ...record, gone: entry };
    case "invited_again":
      return { ...record, invitedAgain: new Set(record.invitedAgain).add(entry.user) };
    case "removed":
      return { ...record, removed: true };
    case "lifted":
      return undefined;
  }
}

export async function journaledPartners(folder: string) {
  const names = (await readdir(folder).catch(() => [])).filter((name) => name.endsWith(SUFFIX));
  const servers = names.flatMap((name) => {
    try {
      return parseServerName(decodeURIComponent(name.slice(0, -SUFFIX.length))) ?? [];
    } catch {
      return []; // No journal has this name.
    }
  });
  return servers.sort();
}

/** The journals that are there, and those of other partners, which are made when something is written. */
export async function journalsIn(folder: string, others: readonly string[]) {
  const partners = new Set<string>([...others, ...(await journaledPartners(folder))]);
  return new Map<string, Journal>([...partners].map((partner) => [partner, journalIn(folder, partner)]));
}

export const journalName = (server: string): string => `${encodeURIComponent(server)}${SUFFIX}`;

export type Journal = ReturnType<typeof journalIn>;

/** The journal of one partner. With `damage`, more can be written, and what it says is not all that was done. */
export function journalIn(folder: string, server: string) {
  const path = join(folder, journalName(server));
  const found = readIfPresent(path) ?? "";
  /** The journal's whole lines; a last line that was cut off is not among them. */
  let whole = found.slice(0, found.lastIndexOf("\n") + 1);
  const records = new Map<RoomId, RoomRecord>();
  let damage: DrawbridgeError | undefined;
  let file: FileHandle | undefined;

  function take(entry: JournalEntry): void {
    const record = foldEntry(records.get(entry.room), entry);
    if (record === undefined) records.delete(entry.room);
    else records.set(entry.room, record);
  }

  for (const [index, line] of whole.split("\n").slice(0, -1).entries()) {
    const entry = Entry.safeParse(parseJson(line)).data;
    if (entry !== undefined) take(entry);
    else {
      const what = `${path}, line ${index + 1} is no entry of a rooms journal`;
      damage ??= new DrawbridgeError("state_unreadable", what, { hint: ROOM_REASONS.journal_damaged });
    }
  }

  async function opened(): Promise<FileHandle> {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    // A line that follows one that was cut off would be unreadable.
    if ((readIfPresent(path) ?? "") !== whole) writeWhole(path, whole, PRIVATE);
    const handle = await open(path, "a", PRIVATE);
    flushFolder(folder);
    return handle;
  }

  /** Many callers share one flush. */
  const batches = new Batches(async (lines: readonly string[]) => {
    const text = lines.join("");
    file ??= await opened();
    try {
      await file.appendFile(text);
      await file.datasync();
    } catch (error) {
      // A full disk takes a part of it, which the next one to write cuts off.
      const broken = file;
      file = undefined;
      await broken.close().catch(() => undefined);
      throw error;
    }
    whole += text;
    return lines;
  });

  return {
    /** Set when a whole line is not a journal's. */
    damage,

    room: (room: RoomId) => records.get(room),

    get rooms(): readonly RoomRecord[] {
      return [...records.values()];
    },

    /** Adds entries; they are on the disk when this resolves. */
    async append(...entries: readonly JournalEntry[]): Promise<void> {
      const lines = entries.map((entry) => `${JSON.stringify(entry)}\n`).join("");
      if (lines !== "") await batches.run(lines);
      for (const entry of entries) take(entry);
    },

    /** Ends the writing, and removes the file when nothing in it is left to be taken back. */
    async finish(): Promise<void> {
      await file?.close();
      if (records.size > 0 || damage !== undefined || !existsSync(path)) return;
      await rm(path);
      flushFolder(folder);
    },
  };
}

const SUFFIX = ".jsonl";

/** What knows the journals of the partners. */
export interface Journaled {
  readonly journals: ReadonlyMap<string, Journal>;
}

export function recordOf({ journals }: Journaled, partner: string, room: RoomId) {
  return journals.get(partner)?.room(room);
}

export function otherRecords({ journals }: Journaled, partner: string, room: RoomId): RoomRecord[] {
  return [...journals].flatMap(([other, journal]) => (other === partner ? [] : (journal.room(room) ?? [])));
}

export function journalOf(session: Journaled, partner: string): Journal {
  const journal = session.journals.get(partner);
  if (journal === undefined) throw new DrawbridgeError("internal", `there is no journal of ${partner}`);
  return journal;
}

/** The journals that cannot be read whole, each of which names its partner. */
export function damagedJournals({ journals }: Journaled): readonly OutOfReach[] {
  const why = { reason: "journal_damaged", hint: ROOM_REASONS.journal_damaged };
  const damaged = [...journals].filter(([, { damage }]) => damage !== undefined);
  return damaged.map(([partner]) => ({ partner, subject: `rooms/${journalName(partner)}`, ...why }));
}

type EntryFor = (partner: string) => JournalEntry;

export async function announce(session: Journaled, partners: readonly ClosingPartner[], entry: EntryFor) {
  const writing = partners.map(({ serverName }) => journalOf(session, serverName).append(entry(serverName)));
  await Promise.all(writing);
}
