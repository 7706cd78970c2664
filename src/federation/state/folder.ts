// The folder in which federation control keeps its records and locks. Invariants: mode 0700; every file is whole
// and flushed before the next step begins; a lock is freed by the kernel when its holder ends, however it ends.
import { chmodSync, type Dirent, mkdirSync, readdirSync } from "node:fs";
import { join, resolve } from "node:path";
import type * as z from "zod";
import type { Clock, Random } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { jsonText, parseJson } from "../../domain/json.ts";
import { namedLock, tryNamedLock } from "../../runtime/named-lock.ts";
import { createFile, PRIVATE, readIfPresent, writeWhole } from "../../runtime/write-file.ts";

/** The longest wait for another pass over the same plane; replacing rooms can take minutes. */
const LOCK_TIMEOUT_MS = 600_000;

export type StateFolder = ReturnType<typeof openStateFolder>;

/** Makes the folder if it is not there. @throws DrawbridgeError `config_unreadable` when this user cannot use it */
export function openStateFolder(path: string, random: Random) {
  const folder = resolve(path);
  /** Names this folder's locks, so that two paths to it mean one lock and no other user can guess it. */
  let lockId: string;
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    chmodSync(folder, 0o700);
    lockId = keepLockId(join(folder, "lock-id"), random);
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code ?? "unknown error";
    throw new DrawbridgeError("config_unreadable", `cannot use the state folder ${folder}: ${code}`, {
      hint: "Correct `state`, or run this as the user that the folder belongs to.",
      cause,
    });
  }
  const lockName = (what: string) => `federation ${lockId} ${what}`;
  const readText = (name: string) => readIfPresent(join(folder, name));
  const writeText = (name: string, text: string) => writeWhole(join(folder, name), text, PRIVATE);
  return {
    path: folder,
    readText,
    writeText,

    /** A file of this folder, checked. @throws DrawbridgeError `state_unreadable` when it is damaged, unless `damaged` is given */
    read<Schema extends z.ZodType>(
      schema: Schema,
      name: string,
      damaged?: (file: string) => void,
      text = readText(name),
    ) {
      const file = join(folder, name);
      if (text === undefined) return undefined;
      const result = schema.safeParse(parseJson(text));
      if (result.success) return result.data;
      if (damaged !== undefined) {
        damaged(file);
        return undefined;
      }
      const hint =
        "Restore it from a backup, or use the version that wrote it; do not move it away, because nothing else holds what is in it.";
      throw damagedFile(file, hint);
    },

    write(name: string, value: unknown): string {
      const text = jsonText(value);
      writeText(name, text);
      return text;
    },

    /** Names in one of this folder's folders, sorted; none when it is not there. @throws DrawbridgeError `state_unreadable` */
    names(inside: string, isNamed: (entry: Dirent) => boolean = () => true): readonly string[] {
      try {
        const entries = readdirSync(join(folder, inside), { withFileTypes: true });
        return entries.flatMap((entry) => (isNamed(entry) ? entry.name : [])).sort();
      } catch (cause) {
        if ((cause as NodeJS.ErrnoException).code === "ENOENT") return [];
        throw new DrawbridgeError("state_unreadable", `${join(folder, inside)} cannot be read`, {
          hint: "Make the folder readable to this user, then repeat the command.",
          cause,
        });
      }
    },

    /** A path below this folder, in a folder of mode 0700. */
    file(inside: string, name: string): string {
      mkdirSync(join(folder, inside), { recursive: true, mode: 0o700 });
      return join(folder, inside, name);
    },

    /** Does something once nobody else does the same. @throws DrawbridgeError `program_failed` after ten minutes */
    async locked<T>(what: string, clock: Clock, work: () => Promise<T>, onWait?: () => unknown) {
      const wait = { clock, timeoutMs: LOCK_TIMEOUT_MS, holder: `another pass (${what})`, onWait };
      const lock = await namedLock(lockName(what), wait);
      try {
        return await work();
      } finally {
        await lock.release();
      }
    },

    tryLock: (what: string) => tryNamedLock(lockName(what)),
  };
}

export const damagedFile = (file: string, hint: string) =>
  new DrawbridgeError("state_unreadable", `${file} is damaged, or of another version of this program`, {
    hint,
  });

/** The text of the file, which the first of several processes writes whole. */
function keepLockId(file: string, random: Random): string {
  const found = readIfPresent(file);
  if (found !== undefined) return found.trim();
  try {
    createFile(file, `${random.bytes(16).toString("hex")}\n`);
  } catch (error) {
    const { cause } = error as { readonly cause: NodeJS.ErrnoException };
    if (cause.code !== "EEXIST") throw cause;
  }
  return readIfPresent(file)?.trim() ?? "";
}
