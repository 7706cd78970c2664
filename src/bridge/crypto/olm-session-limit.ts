// How many Olm sessions a machine's store keeps with one device of somebody else. The library never deletes one, and the
// other device begins as many as it likes.
// Invariants: of the sessions with one device, the one that was not written for the longest time goes first; a session is
// written at each use; those that were not written since the machine was opened go before all others.
import { sameFirstPart } from "./idb-keys.ts";

/** The object store of Olm sessions. The first part of a key names the other device. */
export const OLM_SESSIONS = "session";
/** Matrix asks for at least 4. */
const SESSIONS_PER_DEVICE = 50;

export class OlmSessionLimit {
  /** Keys of the sessions with each device, the one to delete next first. */
  readonly #kept = new Map<string, ReadonlySet<string>>();

  /** These were read. Returns those to delete. */
  found(keys: readonly Buffer[]): readonly Buffer[] {
    return [...Map.groupBy(keys, deviceOf)].flatMap(([device, ofDevice]) => {
      const known = this.#kept.get(device) ?? new Set();
      const read = ofDevice.map((key) => key.toString("latin1")).filter((name) => !known.has(name));
      return this.#keep(device, new Set([...read, ...known]));
    });
  }

  /** This one was written. Returns those to delete. */
  written(key: Buffer): readonly Buffer[] {
    const device = deviceOf(key);
    const name = key.toString("latin1");
    const others = new Set(this.#kept.get(device));
    others.delete(name);
    return this.#keep(device, others.add(name));
  }

  /** This one was deleted. */
  deleted(key: Buffer): void {
    const others = new Set(this.#kept.get(deviceOf(key)));
    others.delete(key.toString("latin1"));
    this.#kept.set(deviceOf(key), others);
  }

  #keep(device: string, inOrder: ReadonlySet<string>): readonly Buffer[] {
    const names = [...inOrder];
    this.#kept.set(device, new Set(names.slice(-SESSIONS_PER_DEVICE)));
    return names.slice(0, -SESSIONS_PER_DEVICE).map((name) => Buffer.from(name, "latin1"));
  }
}

const deviceOf = (key: Buffer) => (sameFirstPart(key)?.from ?? key).toString("latin1");
