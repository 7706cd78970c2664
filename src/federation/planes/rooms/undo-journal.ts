// What was done to rooms because of one partner, and their state before: what reopening works from.
// One file a partner, a JSON line an entry. Invariants: an entry is flushed to disk before the act that it
// announces; the state before is written once and never overwritten; a last line that was cut off by a
// crash is dropped; nothing here is content: room, user, event and server names, levels.

import { mkdirSync } from "node:fs";
import { type FileHandle, open, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { DrawbridgeError } from "../../../domain/errors.ts";
import {
  type EventId,
  parseServerName,
  type RoomId,
  type ServerName,
  type UserId,
} from "../../../domain/identifiers.ts";
import { parseJson } from "../../../domain/json.ts";
import { flushFolder, PRIVATE, readIfPresent, writeWhole } from "../../../runtime/write-file.ts";
import type { Presence } from "./room-state.ts";

const branded = <T extends string>() => z.string().transform((value) => value as T);
const Room = branded<RoomId>();
const User = branded<UserId>();
const Event = branded<EventId>();

/** An ACL as it was found, with nothing but names in it. */
export const JournaledAcl = z.strictObject({
  allow: z.array(z.string()),
  deny: z.array(z.string()),
  allow_ip_literals: z.boolean(),
});
export type JournaledAcl = z.output<typeof JournaledAcl>;

const Levels = z.strictObject({
  events_default: z.number().nullable(),
  events: z.record(z.string(), z.number()),
});

/** Users of the partner, and how they were in the room. */
const Presences = z.array(
  z.strictObject({ user: User, before: z.enum(["join", "invite", "knock", "leave"]) }),
);

const Entry = z.discriminatedUnion("act", [
  /** The invite level is about to be raised; `before` is null where none was written. */
  z.strictObject({
    act: z.literal("invite_level"),
    room: Room,
    before: z.number().nullable(),
    level: z.number(),
  }),
  /** These are about to be banned. */
  z.strictObject({
    act: z.literal("bans"),
    room: Room,
    actor: User,
    users: Presences,
  }),
  z.strictObject({ act: z.literal("banned"), room: Room, user: User, event: Event }),
  /** The ACL is about to be set; `before` is null where there was none. */
  z.strictObject({ act: z.literal("acl"), room: Room, before: JournaledAcl.nullable() }),
  z.strictObject({ act: z.literal("acl_set"), room: Room, event: Event }),
  /** The room is about to become read-only. */
  z.strictObject({ act: z.literal("read_only"), room: Room, before: Levels, level: z.number() }),
  /** The room is about to be replaced. `creator` will make the new one; null: nobody is left to move. */
  z.strictObject({
    act: z.literal("replace"),
    room: Room,
    creator: User.nullable(),
    /** Of the partner, who were in it then. */
    users: Presences.default([]),
  }),
  z.strictObject({
    act: z.literal("replacement"),
    room: Room,
    to: Room,
    aliases: z.array(z.string()),
    /** Local users who were in the old room. */
    members: z.array(User),
    invited: z.array(User),
  }),
  /** Nobody of ours is in the room any more, and it is blocked here. */
  z.strictObject({
    act: z.literal("gone"),
    room: Room,
    how: z.enum(["retired", "left", "replaced"]),
    purged: z.boolean(),
    moved: z.int(),
    invited: z.int(),
  }),
  /** The partner was removed for good since: nobody of it is invited again. */
  z.strictObject({ act: z.literal("removed"), room: Room }),
  /** Everything that could be taken back was. */
  z.strictObject({ act: z.literal("lifted"), room: Room }),
]);
export type JournalEntry = z.output<typeof Entry>;
type EntryOf<Act extends JournalEntry["act"]> = Extract<JournalEntry, { act: Act }>;

export interface BanRecord {
  readonly before: Presence;
  /** Undefined when a crash came between the ban and its entry; then the user who was to ban identifies it. */
  readonly event: EventId | undefined;
  readonly actor: UserId;
}

/** All that a journal says of one room. */
export interface RoomRecord {
  readonly room: RoomId;
  readonly invite?: Pick<EntryOf<"invite_level">, "before" | "level">;
  readonly bans: ReadonlyMap<UserId, BanRecord>;
  readonly acl?: { readonly before: JournaledAcl | null; readonly events: readonly EventId[] };
  readonly readOnly?: Pick<EntryOf<"read_only">, "before" | "level">;
  readonly replace?: EntryOf<"replace">;
  readonly replacement?: EntryOf<"replacement">;
  readonly gone?: EntryOf<"gone">;
  readonly removed?: true;
}

/** The record after one more entry; undefined once it is lifted. */
export function foldEntry(known: RoomRecord | undefined, entry: JournalEntry): RoomRecord | undefined {
  const record: RoomRecord = known ?? { room: entry.room, bans: new Map() };
  switch (entry.act) {
    case "invite_level":
      return {
        ...record,
        invite: { before: record.invite ? record.invite.before : entry.before, level: entry.level },
      };
    case "bans": {
      const bans = new Map(record.bans);
      for (const { user, before } of entry.users) {
        const first = bans.get(user)?.before ?? before;
        bans.set(user, { before: first, event: undefined, actor: entry.actor });
      }
      return { ...record, bans };
    }
    case "banned": {
      const ban = record.bans.get(entry.user);
      if (ban === undefined) return record;
      return { ...record, bans: new Map(record.bans).set(entry.user, { ...ban, event: entry.event }) };
    }
    case "acl":
      return { ...record, acl: record.acl ?? { before: entry.before, events: [] } };
    case "acl_set": {
      const acl = record.acl ?? { before: null, events: [] };
      return { ...record, acl: { ...acl, events: [...acl.events, entry.event] } };
    }
    case "read_only":
      return { ...record, readOnly: record.readOnly ?? { before: entry.before, level: entry.level } };
    case "replace":
      return { ...record, replace: record.replace ?? entry };
    case "replacement":
      return { ...record, replacement: entry };
    case "gone":
      return { ...record, gone: entry };
    case "removed":
      return { ...record, removed: true };
    case "lifted":
      return undefined;
  }
}

/** What a journal says, for reading. */
export interface RoomRecords {
  /** The record of a room; undefined when nothing of it is to be taken back. */
  room(room: RoomId): RoomRecord | undefined;
  readonly rooms: readonly RoomRecord[];
}

/** Reads a journal that somebody else may be writing. */
export function readJournal(folder: string, server: ServerName): RoomRecords {
  const path = fileOf(folder, server);
  const rooms = replay(readIfPresent(path) ?? "", path);
  return { room: (room) => rooms.get(room), rooms: [...rooms.values()] };
}

/** Partners of whom there is a journal, sorted. */
export async function journaledPartners(folder: string): Promise<readonly ServerName[]> {
  const names = await readdir(folder).catch(() => []);
  return names
    .filter((name) => name.endsWith(SUFFIX))
    .map((name) => parseServerName(decodeURIComponent(name.slice(0, -SUFFIX.length))))
    .filter((server) => server !== undefined)
    .sort();
}

/** The journal of one partner, open for writing. */
export class Journal implements RoomRecords {
  readonly server: ServerName;
  readonly #file: FileHandle;
  readonly #rooms: Map<RoomId, RoomRecord>;
  #waiting: string[] = [];
  #flushing: Promise<void> | undefined;

  private constructor(server: ServerName, file: FileHandle, rooms: Map<RoomId, RoomRecord>) {
    this.server = server;
    this.#file = file;
    this.#rooms = rooms;
  }

  /**
   * Opens the journal, or begins it.
   * @throws DrawbridgeError `state_unreadable` when a whole line is not a journal's
   */
  static async open(folder: string, server: ServerName): Promise<Journal> {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const path = fileOf(folder, server);
    const text = readIfPresent(path);
    const rooms = replay(text ?? "", path);
    // A line that follows one that was cut off would be unreadable.
    if (text !== undefined && text !== "" && !text.endsWith("\n")) {
      writeWhole(path, text.slice(0, text.lastIndexOf("\n") + 1), PRIVATE);
    }
    const file = await open(path, "a", PRIVATE);
    flushFolder(folder);
    return new Journal(server, file, rooms);
  }

  room(room: RoomId): RoomRecord | undefined {
    return this.#rooms.get(room);
  }

  get rooms(): readonly RoomRecord[] {
    return [...this.#rooms.values()];
  }

  /** Adds entries; they are on the disk when this resolves. Many callers share one flush. */
  async append(...entries: readonly JournalEntry[]): Promise<void> {
    for (const entry of entries) {
      const record = foldEntry(this.#rooms.get(entry.room), entry);
      if (record === undefined) this.#rooms.delete(entry.room);
      else this.#rooms.set(entry.room, record);
      this.#waiting.push(`${JSON.stringify(entry)}\n`);
    }
    const before = this.#flushing;
    if (before === undefined) {
      this.#flushing = this.#flush().finally(() => {
        this.#flushing = undefined;
      });
      return this.#flushing;
    }
    // The flush under way may not hold these entries; the first caller after it starts another.
    await before;
    if (this.#waiting.length > 0 || this.#flushing !== undefined) await this.append();
  }

  async close(): Promise<void> {
    await this.#flushing;
    await this.#file.close();
  }

  /** Closes it, and removes the file when nothing in it is left to be taken back. */
  async finish(folder: string): Promise<void> {
    await this.close();
    if (this.#rooms.size > 0) return;
    await rm(fileOf(folder, this.server), { force: true });
    flushFolder(folder);
  }

  async #flush(): Promise<void> {
    while (this.#waiting.length > 0) {
      const lines = this.#waiting.join("");
      this.#waiting = [];
      await this.#file.write(lines);
      await this.#file.datasync();
    }
  }
}

const SUFFIX = ".jsonl";

function fileOf(folder: string, server: ServerName): string {
  return join(folder, `${encodeURIComponent(server)}${SUFFIX}`);
}

function replay(text: string, path: string): Map<RoomId, RoomRecord> {
  const rooms = new Map<RoomId, RoomRecord>();
  const lines = text.split("\n");
  lines.pop(); // Empty, or cut off by a crash.
  lines.forEach((line, index) => {
    const entry = Entry.safeParse(parseJson(line)).data;
    if (entry === undefined) {
      throw new DrawbridgeError(
        "state_unreadable",
        `${path}, line ${index + 1} is no entry of a rooms journal`,
        {
          hint: "Put the file back from a backup: without it bans and ACLs of this partner cannot be taken back.",
        },
      );
    }
    const record = foldEntry(rooms.get(entry.room), entry);
    if (record === undefined) rooms.delete(entry.room);
    else rooms.set(entry.room, record);
  });
  return rooms;
}
