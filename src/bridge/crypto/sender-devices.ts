// Which devices of senders a ghost's machine could write to. A message that brings a key brings its device's keys
// too, so an event of a device that logged in a moment ago is believed before the homeserver has told of the
// device; what is sealed then would not reach it. So the devices of whoever wrote from one that is not known are
// asked for, and the queries come with `outgoing`, before the next event is sealed. The homeserver may answer
// from a list of its own that is as old.
// Invariants: a device is asked for a few times at most, for it may be one that nobody ever publishes; what fails
// here fails no event.
import { DeviceLists, type OlmMachine, UserId as SdkUserId } from "@matrix-org/matrix-sdk-crypto-wasm";
import type { UserId } from "../../domain/identifiers.ts";
import { deviceWithKey } from "./machine-policy.ts";
import { isPanic } from "./panic.ts";

const ASKED_MAX = 3;
const REMEMBERED_MAX = 10_000;

export class SenderDevices {
  readonly #known = new Set<string>();
  readonly #asked = new Map<string, number>();

  /** Has the sender's devices asked for, unless the one with this key is known or was asked for often enough. */
  async seek(machine: OlmMachine, sender: UserId, curve25519: string): Promise<{ readonly asked?: true }> {
    const device = `${sender} ${curve25519}`;
    const asked = this.#asked.get(device) ?? 0;
    if (this.#known.has(device) || asked >= ASKED_MAX) return {};
    try {
      if ((await deviceWithKey(machine, sender, curve25519)) !== undefined) {
        if (this.#known.size >= REMEMBERED_MAX) this.#known.clear();
        this.#known.add(device);
        return {};
      }
      if (this.#asked.size >= REMEMBERED_MAX) this.#asked.clear();
      this.#asked.set(device, asked + 1);
      await machine.updateTrackedUsers([new SdkUserId(sender)]);
      await machine.receiveSyncChangesMsc4186("[]", new DeviceLists([new SdkUserId(sender)]), new Map());
      return { asked: true };
    } catch (error) {
      if (isPanic(error)) throw error;
      return {};
    }
  }

  /** The homeserver has told of devices: one that was known may be gone. */
  changed(): void {
    this.#known.clear();
  }
}
