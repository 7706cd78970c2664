// A ghost as the homeserver knows it: a registered user with one managed device and a display name.
// Invariants: only an agent's present or former ghost has an account; a device ID is stored before the homeserver hears of
// it; a device that ever had keys is never put again, because what was deleted with it cannot be made again; a refusal of
// the ghost is never handed on as one of what it wanted to do.
import type { Clock, Random } from "../../domain/clock.ts";
import { sha256Tagged } from "../../domain/digest.ts";
import type { GhostMxid } from "../../domain/identifiers.ts";
import { resultUnlessAborted } from "../../runtime/concurrency.ts";
import type { GhostLedger } from "../ledger/ledger.ts";
import type { Homeserver } from "./homeserver.ts";
import type { GhostActor } from "./http.ts";
import { type Ok, type Outcome, ok, type Refused, type Retry, refused, retry } from "./request-result.ts";

const DEVICE_NAME = "Drawbridge";
const DEVICE_ID_BYTES = 10;
/** Between two changes by an agent's card of the name or the avatar, which are events in all rooms of the ghost. */
export const CARD_CHANGE_INTERVAL_MS = 60 * 60_000;
const UNKNOWN_DEVICE = "M_UNKNOWN_DEVICE";

export interface GhostsDependencies {
  readonly homeserver: Homeserver;
  readonly ledger: { readonly ghosts: Pick<GhostLedger, "ensureDevice" | "recordProfile" | "hadKeys"> };
  readonly clock: Clock;
  readonly random: Random;
  /** Whether an account may be made for this ghost; any ghost's when absent. */
  readonly mayMake?: (ghost: GhostMxid) => Promise<boolean>;
}

export class Ghosts {
  readonly #deps: GhostsDependencies;
  readonly #ready = new Map<GhostMxid, GhostActor>();
  readonly #inFlight = new Map<GhostMxid, Promise<Outcome<GhostActor>>>();

  /** Called when the homeserver does not know a device that once had keys there. */
  onDeviceDeleted: (ghost: GhostMxid, deviceId: string) => void = () => undefined;

  constructor(deps: GhostsDependencies) {
    this.#deps = deps;
  }

  /** The ghost with its device, registered if it was not yet; done once a process for each ghost. */
  ensureGhost(ghost: GhostMxid): Promise<Outcome<GhostActor>> {
    const ready = this.#ready.get(ghost);
    if (ready !== undefined) return Promise.resolve(ok(ready));
    const running = this.#inFlight.get(ghost);
    if (running !== undefined) return running;
    const started = this.#make(ghost).finally(() => this.#inFlight.delete(ghost));
    this.#inFlight.set(ghost, started);
    return started;
  }

  forget(ghost: GhostMxid): void {
    this.#ready.delete(ghost);
  }

  /** The ghost ready to act, or when to try again. @param signal ends the wait, and the actor's requests */
  async readyGhost(ghost: GhostMxid, signal?: AbortSignal): Promise<Ok<GhostActor> | Retry> {
    if (signal?.aborted === true) return retry("stopped");
    // The registration goes on, since other callers share it.
    const made = (await resultUnlessAborted(this.ensureGhost(ghost), signal)) ?? retry("stopped");
    if (made.kind === "ok") return ok({ ...made.value, signal });
    return made.kind === "retry" ? made : retry("ghost_refused", undefined, made.errcode);
  }

  /**
   * Acts as the ghost's device; `refused` is about the action alone. A device that the homeserver does not know is restored,
   * and the action repeated once. @param signal ends a request in flight; once it has aborted none is begun
   */
  async acting<T>(
    ghost: GhostMxid,
    action: (actor: GhostActor) => Promise<Outcome<T>>,
    signal?: AbortSignal,
  ): Promise<Outcome<T>> {
    const actor = await this.readyGhost(ghost, signal);
    if (actor.kind !== "ok") return actor;
    const first = await action(actor.value);
    if (!isOfGhost(first)) return first;
    const repaired = await this.restoreDevice(actor.value);
    if (repaired.kind !== "ok") return repaired;
    const second = await action(actor.value);
    return isOfGhost(second) ? retry("ghost_refused", undefined, second.errcode) : second;
  }

  /** Puts a device that the homeserver does not know, if it never had keys; else reports it. */
  async restoreDevice(actor: GhostActor): Promise<Ok<undefined> | Retry> {
    const { ledger, homeserver, clock } = this.#deps;
    const { ghost, deviceId } = actor;
    const recorded = await ledger.ghosts.ensureDevice(ghost, deviceId, clock.now());
    if (recorded.deviceId !== deviceId) {
      // The device was reset meanwhile: the next request is made as the new device.
      this.forget(ghost);
      return retry("device_unavailable", undefined, UNKNOWN_DEVICE);
    }
    if (await ledger.ghosts.hadKeys(ghost, deviceId)) {
      this.onDeviceDeleted(ghost, deviceId);
      return retry("ghost_refused", undefined, UNKNOWN_DEVICE);
    }
    const put = await homeserver.putDevice(actor, DEVICE_NAME);
    return put.kind === "refused" ? retry("ghost_refused", undefined, put.errcode) : put;
  }

  /** Sets a display name that differs from the one last set; a card's that comes too soon is left for later. */
  async setProfile(
    ghost: GhostMxid,
    displayName: string,
    chosenBy: "operator" | "card",
    signal?: AbortSignal,
  ): Promise<Outcome<"set" | "unchanged">> {
    const { homeserver, ledger, clock } = this.#deps;
    const actor = await this.readyGhost(ghost, signal);
    if (actor.kind !== "ok") return actor;
    const digest = sha256Tagged(JSON.stringify({ displayName }));
    const now = clock.now();
    const device = await ledger.ghosts.ensureDevice(ghost, actor.value.deviceId, now);
    const { profileSetAt = Number.NEGATIVE_INFINITY } = device;
    const isTooSoon = chosenBy === "card" && now < profileSetAt + CARD_CHANGE_INTERVAL_MS;
    if (device.profileDigest === digest || isTooSoon) return ok("unchanged");
    const outcome = await homeserver.setDisplayName(actor.value, displayName);
    if (outcome.kind !== "ok") return outcome;
    await ledger.ghosts.recordProfile(ghost, digest, now);
    return ok("set");
  }

  async #make(ghost: GhostMxid): Promise<Outcome<GhostActor>> {
    const { homeserver, ledger, clock, random, mayMake } = this.#deps;
    if (mayMake !== undefined && !(await mayMake(ghost))) return refused(404, "DRAWBRIDGE_NO_AGENT");
    const { deviceId } = await ledger.ghosts.ensureDevice(ghost, freshDeviceId(random), clock.now());
    const actor: GhostActor = { ghost, deviceId };
    const registered = await homeserver.registerGhost(ghost);
    if (registered.kind !== "ok") return registered;
    if (!(await ledger.ghosts.hadKeys(ghost, deviceId))) {
      const put = await homeserver.putDevice(actor, DEVICE_NAME);
      if (put.kind !== "ok") return put;
    }
    this.#ready.set(ghost, actor);
    return ok(actor);
  }
}

function isOfGhost<T>(outcome: Outcome<T>): outcome is Refused {
  return outcome.kind === "refused" && outcome.errcode === UNKNOWN_DEVICE;
}

export function freshDeviceId(random: Random): string {
  return [...random.bytes(DEVICE_ID_BYTES)].map((byte) => String.fromCharCode(65 + (byte % 26))).join("");
}
