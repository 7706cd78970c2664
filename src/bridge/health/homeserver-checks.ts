// Whether the homeserver and the bridge work together, checked with the requests that the bridge itself makes.
// Invariants: every failing check has a hint; nothing is created that the bridge would not create anyway; /versions
// only distinguishes "not reachable" from "reachable, but refuses".
import type { GhostMxid } from "../../domain/identifiers.ts";
import type { BridgeConfig } from "../config.ts";
import type { Ghosts } from "../matrix/ghosts.ts";
import type { Homeserver } from "../matrix/homeserver.ts";
import { type Failure, reasonOf } from "../matrix/request-result.ts";
import type { Readiness } from "./health-server.ts";

export interface HomeserverCheckDependencies {
  readonly config: Pick<BridgeConfig, "appservice" | "homeserver">;
  readonly homeserver: Homeserver;
  /** Whether the bridge listens: otherwise the homeserver cannot call it back, and is not requested to. */
  readonly listening: boolean;
}

export interface SelfCheckDependencies extends HomeserverCheckDependencies {
  readonly ghosts: Ghosts;
  /** A ghost of the bridge's, to try; undefined when no agent is configured yet. */
  readonly ghost: GhostMxid | undefined;
}

type Hint = string | undefined;

const RENDER_AGAIN =
  "Render the registration again with `drawbridge bridge registration`, give it to the homeserver, and restart that and every bridge process.";

const result = (name: string, hint: Hint): Readiness => ({ name, ok: hint === undefined, hint });

/** The checks that need no ghost. One that cannot succeed after a failed one is left out. */
export async function checkHomeserver(deps: HomeserverCheckDependencies): Promise<readonly Readiness[]> {
  const reachable = result("homeserver_reachable", await homeserverReachable(deps));
  if (!reachable.ok) return [reachable];
  const accepted = result("token_accepted", await tokenAccepted(deps));
  if (!accepted.ok || !deps.listening) return [reachable, accepted];
  // A load balancer between the two passes the call on only to a process that is ready.
  const calledBack = result("bridge_reachable", await bridgeReachable(deps));
  return [reachable, accepted, { ...calledBack, blocking: false }];
}

export async function selfCheck(deps: SelfCheckDependencies): Promise<readonly Readiness[]> {
  const checks = await checkHomeserver(deps);
  const { ghost, ghosts } = deps;
  const hopeless = checks.some(({ name, ok }) => !ok && name !== "bridge_reachable");
  if (ghost === undefined || hopeless) return checks;
  const made = await ghosts.ensureGhost(ghost);
  const registers = result("ghost_registers", made.kind === "ok" ? undefined : ghostHint(made));
  if (!registers.ok) return [...checks, registers];
  return [...checks, registers, result("ghost_device", await ghostDevice(deps, ghost))];
}

async function homeserverReachable({ homeserver, config }: HomeserverCheckDependencies): Promise<Hint> {
  const versions = await homeserver.versions();
  // A refused token is the next check's result.
  if (versions.kind === "ok" || (versions.kind === "retry" && versions.cause === "unauthorized")) {
    return undefined;
  }
  return `No Matrix homeserver answers at ${config.homeserver.url} (${reasonOf(versions)}): check homeserver.url, and that it runs.`;
}

async function tokenAccepted({ homeserver, config }: HomeserverCheckDependencies): Promise<Hint> {
  const whoami = await homeserver.whoami();
  if (whoami.kind !== "ok")
    return `The homeserver does not accept the as_token (${reasonOf(whoami)}). ${RENDER_AGAIN}`;
  const expected = `@${config.appservice.senderLocalpart}:${config.homeserver.serverName}`;
  if (whoami.value.user_id === expected) return undefined;
  return `The homeserver takes the bridge for ${whoami.value.user_id}, not ${expected}: check homeserver.serverName and appservice.senderLocalpart. ${RENDER_AGAIN}`;
}

async function bridgeReachable({ homeserver, config }: HomeserverCheckDependencies): Promise<Hint> {
  const ping = await homeserver.pingAppservice(config.appservice.id);
  if (ping.kind === "ok") return undefined;
  const url = config.appservice.url;
  // A failed ping is a 5xx for the homeserver; its cause is in the error code (MSC2659).
  switch (reasonOf(ping)) {
    case "M_CONNECTION_FAILED":
    case "M_CONNECTION_TIMEOUT":
    case "timeout":
      return `The homeserver cannot reach the bridge at ${url}: check appservice.url, listen and what stands between.`;
    case "M_BAD_STATUS":
      return `Something at ${url} answers the homeserver, but refuses it: another program, or another hs_token. ${RENDER_AGAIN}`;
    case "M_URL_NOT_SET":
    case "M_FORBIDDEN":
      return `The homeserver has a registration with another ID or without a URL. ${RENDER_AGAIN}`;
    default:
      return `The homeserver did not call the bridge back (${reasonOf(ping)}); it may be too old for that; Synapse 1.163 is known to work.`;
  }
}

function ghostHint(outcome: Failure): string {
  if (outcome.kind === "refused" && outcome.errcode === "M_EXCLUSIVE") {
    return `The ghosts' names belong to another registration or to none: check appservice.ghostPrefix. ${RENDER_AGAIN}`;
  }
  return `A ghost cannot be registered with its device (${reasonOf(outcome)}). The registration needs io.element.msc4190: true, and the homeserver must know it; Synapse 1.163 does. ${RENDER_AGAIN}`;
}

/** Transaction IDs are remembered for a device only, so a request must really count as that device's. */
async function ghostDevice({ homeserver, ghosts }: SelfCheckDependencies, ghost: GhostMxid): Promise<Hint> {
  const whoami = await ghosts.acting(ghost, (actor) => homeserver.whoami(actor));
  if (whoami.kind !== "ok") return `A ghost cannot act as its device (${reasonOf(whoami)}). ${RENDER_AGAIN}`;
  const actor = await ghosts.ensureGhost(ghost);
  if (actor.kind === "ok" && whoami.value.device_id === actor.value.deviceId) return undefined;
  return "The homeserver ignores the device that a ghost acts as: it is too old for that; Synapse 1.163 is known to work.";
}
