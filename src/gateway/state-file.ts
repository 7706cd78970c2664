// Writing state.json: what is in force, for federation control and for people.
// Invariants: written only after Envoy has reported every version; gone while no gateway runs, as far as the
// gateway can see to it, so that a state that is read is that of a running gateway.
import { rmSync } from "node:fs";
import type { Clock } from "../domain/clock.ts";
import type { GatewayState } from "../rendered-files/gateway-state.ts";
import { PUBLIC, writeWhole } from "../runtime/write-file.ts";
import type { RefusedFile, Sources } from "./source-files.ts";

export class StateFile {
  readonly #file: string;
  readonly #clock: Clock;
  #since = "";
  #inForce = "";
  #refused: { readonly key: string; readonly at: string } | undefined;

  constructor(file: string, clock: Clock) {
    this.#file = file;
    this.#clock = clock;
  }

  clear(): void {
    rmSync(this.#file, { force: true });
  }

  /** Reports these sources as in force, and the first of these files as refused. */
  write(sources: Sources, [refused]: readonly RefusedFile[]): void {
    const now = new Date(this.#clock.now()).toISOString();
    const { publication, invocation, gateway } = sources;
    const inForce = [publication.digest, invocation.digest, gateway.digest].join();
    if (inForce !== this.#inForce) this.#since = now;
    this.#inForce = inForce;
    const key = refused && `${refused.file} ${refused.digest} ${refused.reason}`;
    if (key !== this.#refused?.key) this.#refused = key === undefined ? undefined : { key, at: now };
    const state: GatewayState = {
      version: 1,
      publication: publication.digest,
      invocation: invocation.digest,
      since: this.#since,
      refused:
        refused === undefined
          ? null
          : {
              file: refused.file,
              digest: refused.digest,
              reason: refused.reason,
              at: this.#refused?.at ?? now,
            },
    };
    writeWhole(this.#file, `${JSON.stringify(state, null, 2)}\n`, PUBLIC);
  }
}
