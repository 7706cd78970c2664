// Makes the requests that one ghost's machine wants made, and gives it the homeserver's answers. Invariants: one request at
// a time; the homeserver gets a new epoch before keys; a request that fails is made again later, and holds up no other.
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

export function createDeviceRequests(deps: DeviceRequestsDependencies) {
  const { ghost, machines, api, log, actor, raiseEpoch, onRefused } = deps;
  const serial = new Serial();
  let waits = false;
  let isDue = false;
  let made = 0;

  function driveSoon(): void {
    if (waits) return;
    waits = true;
    const driven = serial.run(() => {
      waits = false;
      return driveNow();
    });
    void driven.catch(() => undefined);
  }

  /** Makes requests that the machine gives out of turn, with no other between them, until one fails. */
  function alone(give: () => Promise<readonly OutgoingRequest[]>): Promise<Outcome<undefined>> {
    return serial.run(async () => {
      for (const request of await give()) {
        const outcome = await submit(request);
        if (outcome.kind !== "ok") return outcome;
      }
      return DONE;
    });
  }

  async function driveNow(): Promise<Outcome<undefined>> {
    if (actor() === undefined) return retry("device_unavailable");
    // Requests count as due until they are made, because the machine itself may fail.
    isDue = true;
    let failure: Failure | undefined;
    for (let round = 0; round < ROUNDS_MAX && failure === undefined; round++) {
      const requests = await machines.outgoing(ghost);
      if (requests.length === 0) break;
      for (const request of requests) {
        const outcome = await submit(request);
        if (outcome.kind === "ok") continue;
        failure ??= outcome;
        if (outcome.kind === "retry") break;
      }
    }
    isDue = failure !== undefined;
    return failure ?? DONE;
  }

  async function submit(request: OutgoingRequest): Promise<Outcome<undefined>> {
    const device = actor();
    if (device === undefined) return retry("device_unavailable");
    if (request.kind === "keys_upload") {
      const raised = await raiseEpoch();
      if (raised.kind !== "ok") return raised;
    }
    const outcome = await api.submit(device, request);
    made += 1;
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

  return {
    ...{ driveSoon, alone, drive: () => serial.run(driveNow), ended: () => serial.ended() },
    get made() {
      return made;
    },
    get isDue() {
      return isDue;
    },
  };
}
