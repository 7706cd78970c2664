// The agent's own record of its tasks: the files of its store, which survive it.
// Invariant: a file is read again whenever it has changed.
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { tokenIn } from "./topics.ts";

const TASK_FILE = /^[0-9a-f-]{36}\.json$/;

export class AgentJournal {
  readonly #folder: string;
  readonly #read = new Map<string, number>();

  constructor(agentFolder: string) {
    this.#folder = join(agentFolder, "tasks");
  }

  /** Tasks that are new, or have changed, since the last reading: each with the token of its question. */
  read(): readonly { readonly id: string; readonly token: string }[] {
    return readdirSync(this.#folder)
      .filter((name) => TASK_FILE.test(name))
      .flatMap((name) => {
        const file = join(this.#folder, name);
        const { mtimeMs } = statSync(file);
        if (this.#read.get(name) === mtimeMs) return [];
        this.#read.set(name, mtimeMs);
        const token = tokenIn(readFileSync(file, "utf8"));
        return token === undefined ? [] : [{ id: name, token }];
      });
  }
}
