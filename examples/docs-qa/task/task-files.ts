// One small file for each task, written beside and renamed.
// Invariants: a task's file is whole or absent, whatever ends the process; a new state is on disk before a
// caller reads it; files are this user's alone, since they hold questions and answers.
import { mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { open, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { Task } from "@a2a-js/sdk";
import { DrawbridgeError } from "../../../src/domain/errors.ts";

/** Whose task it is: the caller the gateway named, and the tenant the caller named. */
export interface TaskScope {
  readonly caller: string;
  readonly tenant: string;
}

export interface StoredTask {
  readonly scope: TaskScope;
  readonly task: Task;
}

const FILE_NAME = /^([0-9a-f-]{36})\.json$/;
const FORMAT = 1;

interface TaskFile {
  readonly format: typeof FORMAT;
  readonly scope: TaskScope;
  readonly task: unknown;
}

export class TaskFiles {
  readonly #directory: string;
  #sequence = 0;

  constructor(directory: string) {
    this.#directory = directory;
    mkdirSync(directory, { recursive: true, mode: 0o700 });
  }

  /**
   * All stored tasks, in no order. Leftovers of a write that a crash cut short are removed.
   * @throws DrawbridgeError `config_unreadable` when a file is not a task: the store is not to be guessed at
   */
  readAll(): StoredTask[] {
    const tasks: StoredTask[] = [];
    for (const name of readdirSync(this.#directory)) {
      if (name.endsWith(".part")) rmSync(join(this.#directory, name), { force: true });
      else if (FILE_NAME.test(name)) tasks.push(readTask(join(this.#directory, name)));
    }
    return tasks;
  }

  /** Resolves when the task is on disk. */
  async write({ scope, task }: StoredTask): Promise<void> {
    const content: TaskFile = { format: FORMAT, scope, task: Task.toJSON(task) };
    const target = this.#pathOf(task.id);
    const part = `${target}.${this.#sequence++}.part`;
    const file = await open(part, "wx", 0o600);
    try {
      await file.writeFile(JSON.stringify(content));
      await file.datasync();
    } finally {
      await file.close();
    }
    await rename(part, target);
    await this.#syncDirectory();
  }

  async remove(taskId: string): Promise<void> {
    await rm(this.#pathOf(taskId), { force: true });
  }

  #pathOf(taskId: string): string {
    const name = `${taskId}.json`;
    if (!FILE_NAME.test(name)) throw new DrawbridgeError("internal", "a task ID is not one of ours");
    return join(this.#directory, name);
  }

  async #syncDirectory(): Promise<void> {
    const directory = await open(this.#directory, "r");
    try {
      await directory.sync();
    } finally {
      await directory.close();
    }
  }
}

function readTask(path: string): StoredTask {
  try {
    const file = JSON.parse(readFileSync(path, "utf8")) as TaskFile;
    if (file.format !== FORMAT) throw new TypeError("another format");
    return { scope: file.scope, task: Task.fromJSON(file.task) };
  } catch (cause) {
    throw new DrawbridgeError("config_unreadable", `${path} is not a stored task`, {
      hint: "Move the file away; its task is then forgotten.",
      cause,
    });
  }
}
