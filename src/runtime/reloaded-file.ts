// A file of configuration that is read again whenever it changes.
// Invariant: a version that cannot be used leaves the last good one in force, and is reported once.
import { DrawbridgeError } from "../domain/errors.ts";
import { readInput } from "./read-input.ts";

export interface ReloadedFileOptions<T> {
  readonly file: string;
  /** @throws DrawbridgeError for a text that cannot be used */
  readonly parse: (text: string) => T;
  readonly onLoaded: (value: T) => void;
  readonly onRefused: (error: DrawbridgeError) => void;
}

export class ReloadedFile<T> {
  readonly #options: ReloadedFileOptions<T>;
  /** The text read last, good or not; undefined while it cannot be read. */
  #text: string | undefined;
  inForce: { readonly text: string; readonly value: T };

  /** @throws DrawbridgeError when there is no good version to start with */
  constructor(options: ReloadedFileOptions<T>) {
    this.#options = options;
    const text = this.#read();
    this.inForce = { text, value: options.parse(text) };
  }

  check(): void {
    const { parse, onLoaded, onRefused } = this.#options;
    const before = this.#text;
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
    this.#text = undefined;
    this.#text = readInput(this.#options.file).toString("utf8");
    return this.#text;
  }
}
