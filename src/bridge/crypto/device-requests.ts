// Makes the requests that one ghost's machine wants made, and gives it the homeserver's answers.
// Invariants: one request at a time; the homeserver gets a new epoch before it gets keys; a request that fails is made
// again later, and holds up no other request.
import type { Logger } from "pino";
import type { GhostMxid } from "../../domain/identifiers.ts";
import { Serial } from "../../runtime/concurrency.ts";
import type { DeviceApi, OutgoingRequest } from "../matrix/device-api.ts";
import type { GhostActor } from "../matrix/http.ts";
import { DONE, type Failure, type Outcome, type Refused, retry } from "../matrix/request-result.ts";
import type { Machines } from "./machines.ts";

const ROUNDS_MAX = 16;

export interface DeviceRequestsDependencies {
  readonly ghost: GhostMxid;
  readonly machines: Pick<Machines, "outgoing" | "sent">;
  readonly api: DeviceApi;
  readonly log: Logger;
  readonly actor: () => GhostActor | undefined;
  readonly raiseEpoch: () => Promise<Outcome<undefined>>;
  readonly onRefused: (outcome: Refused, kind: OutgoingRequest["kind"]) => Promise<void>;
}

export class DeviceRequests {
  readonly #deps: DeviceRequestsDependencies;
  readonly #serial = new Serial();
  #waits = false;
  #isDue = false;
  #made = 0;

  constructor(deps: DeviceRequestsDependencies) {
    this.#deps = deps;
  }

  get made(): number {
    return this.#made;
  }

  get isDue(): boolean {
    return this.#isDue;
  }

  /** Makes the machine's requests until it wants none. */
  drive(): Promise<Outcome<undefined>> {
    return this.#serial.run(() => this.#drive());
  }

  driveSoon(): void {
    if (this.#waits) return;
    this.#waits = true;
    const driven = this.#serial.run(() => {
      this.#waits = false;
      return this.#drive();
    });
    void driven.catch(() => {
      this.#isDue = true;
    });
  }

  /** Makes requests that the machine gives out of turn, with no other between them, until one fails. */
  alone(give: () => Promise<readonly OutgoingRequest[]>): Promise<Outcome<undefined>> {
    return this.#serial.run(async () => {
      for (const request of await give()) {
        const outcome = await this.#submit(request);
        if (outcome.kind !== "ok") return outcome;
      }
      return DONE;
    });
  }

  ended(): Promise<void> {
    return this.#serial.ended();
  }

  async #drive(): Promise<Outcome<undefined>> {
    const { machines, ghost, actor } = this.#deps;
    if (actor() === undefined) return retry("device_unavailable");
    // Requests count as due until they are made, because the machine itself may fail.
    this.#isDue = true;
    let failure: Failure | undefined;
    for (let round = 0; round < ROUNDS_MAX && failure === undefined; round++) {
      const requests = await machines.outgoing(ghost);
      if (requests.length === 0) break;
      for (const request of requests) {
        const outcome = await this.#submit(request);
        if (outcome.kind === "ok") continue;
        failure ??= outcome;
        if (outcome.kind === "retry") break;
      }
    }
    this.#isDue = failure !== undefined;
    return failure ?? DONE;
  }

  async #submit(request: OutgoingRequest): Promise<Outcome<undefined>> {
    const { api, machines, log, ghost, raiseEpoch, onRefused } = this.#deps;
    const actor = this.#deps.actor();
    if (actor === undefined) return retry("device_unavailable");
    if (request.kind === "keys_upload") {
      const raised = await raiseEpoch();
      if (raised.kind !== "ok") return raised;
    }
    const outcome = await api.submit(actor, request);
    this.#made += 1;
    if (outcome.kind === "ok") {
      await machines.sent(ghost, request, outcome.value);
      return DONE;
    }
    if (outcome.kind === "refused") {
      const { errcode } = outcome;
      log.warn({ ghost, request: request.kind, errcode }, "a request of a ghost's device was refused");
      await onRefused(outcome, request.kind);
    }
    return outcome;
  }
}
