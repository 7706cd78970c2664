// A file of configuration that is read again whenever it changes. Invariant: a version that cannot be used leaves the last
// good one in force, and is reported once; a rewrite is noticed even when size and modification time stay the same.
import { statSync } from "node:fs";
import { systemClock } from "../domain/clock.ts";
import { DrawbridgeError } from "../domain/errors.ts";
import { readInput } from "./read-input.ts";

export interface ReloadedFileOptions<T> {
  readonly file: string;
  /** @throws DrawbridgeError for a text that cannot be used */
  readonly parse: (text: string) => T;
  readonly onLoaded: (value: T) => void;
  readonly onRefused: (error: DrawbridgeError) => void;
}

/** File systems stamp by a coarse clock: so soon after a change, the same stamp does not prove the same content. */
const UNSETTLED_MS = 1_000;

/** Undefined for a file that cannot be looked at: reading it reports why. */
function stampOf(file: string): { text: string; modifiedMs: number } | undefined {
  try {
    const { ino, size, mtimeNs, ctimeNs, mtimeMs } = statSync(file, { bigint: true });
    return { text: `${ino}:${size}:${mtimeNs}:${ctimeNs}`, modifiedMs: Number(mtimeMs) };
  } catch {
    return undefined;
  }
}

export class ReloadedFile<T> {
  readonly #options: ReloadedFileOptions<T>;
  /** The text read last, good or not; undefined while it cannot be read. */
  #text: string | undefined;
  /** The file's stamp, where the same stamp proves the same text. */
  #stamp: string | undefined;
  inForce: { readonly text: string; readonly value: T };

  /** @throws DrawbridgeError when there is no good version to start with */
  constructor(options: ReloadedFileOptions<T>) {
    this.#options = options;
    const text = this.#read();
    this.inForce = { text, value: options.parse(text) };
  }

  check(): void {
    const { file, parse, onLoaded, onRefused } = this.#options;
    const before = this.#text;
    if (this.#stamp !== undefined && stampOf(file)?.text === this.#stamp) return;
    try {
      const text = this.#read();
      if (text === before) return;
      this.inForce = { text, value: parse(text) };
    } catch (error) {
      if (!(error instanceof DrawbridgeError)) throw error;
      // Else it could not be read the last time either, and that was reported.
      if (this.#text !== undefined || before !== undefined) onRefused(error);
      return;
    }
    onLoaded(this.inForce.value);
  }

  #read(): string {
    const { file } = this.#options;
    this.#text = undefined;
    this.#stamp = undefined;
    // Stamped before it is read, so that a change in between is found at the next check.
    const stamp = stampOf(file);
    this.#text = readInput(file).toString("utf8");
    const isSettled = stamp !== undefined && Math.abs(systemClock.now() - stamp.modifiedMs) > UNSETTLED_MS;
    if (isSettled) this.#stamp = stamp.text;
    return this.#text;
  }
}
