// What every part of the bridge works on, wired together: the ledger, the homeserver and its ghosts.
// Invariant: rows are claimed by the present number of this process, and none while it has none.
import type { GhostMxid } from "../domain/identifiers.ts";
import type { BridgeContext } from "./context.ts";
import { createNamespace } from "./intake/namespace.ts";
import { createLedger, type Ledger } from "./ledger/ledger.ts";
import type { ClaimRequest } from "./ledger/postgres.ts";
import { Ghosts } from "./matrix/ghosts.ts";
import { Homeserver } from "./matrix/homeserver.ts";
import type { HomeserverOptions } from "./matrix/http.ts";
import type { Ownership } from "./ownership.ts";

export function createLedgerAndGhosts(
  { config, clock, log, random, agents, database, metrics, secrets }: BridgeContext,
  ownership: Ownership,
) {
  const namespace = createNamespace({ serverName: config.homeserver.serverName, ...config.appservice });
  const tables = createLedger(database.pool, secrets.keys, {
    noticeIntervalMs: config.limits.noticeInterval,
    roomGateMs: config.limits.roomGate,
    servesEncryptedRooms: config.encryption.mode === "on",
    isGhost: namespace.isOwn,
  });
  const ledger: Ledger = {
    ...tables,
    delegations: claimedBy(ownership, tables.delegations),
    envelopes: claimedBy(ownership, tables.envelopes),
    notices: claimedBy(ownership, tables.notices),
    statuses: claimedBy(ownership, tables.statuses),
    memberships: claimedBy(ownership, tables.memberships),
  };
  const homeserverOptions: HomeserverOptions = {
    url: config.homeserver.url,
    asToken: secrets.asToken,
    requestTimeoutMs: config.homeserver.requestTimeout,
    clock,
    onKeysTooLarge: (user) =>
      log.warn({ user }, "a user has more keys than are read, and gets no room keys for a while"),
    observe: (operation, outcome, ms) =>
      metrics.homeserverSeconds.observe({ operation, outcome }, ms / 1_000),
  };
  const homeserver = new Homeserver(homeserverOptions);
  const mayMake = async (ghost: GhostMxid) =>
    (await agents.current()).byGhost.has(ghost) || (await ledger.ghosts.recordedDevice(ghost)) !== undefined;
  const ghosts = new Ghosts({ homeserver, ledger, clock, random, mayMake });
  return { namespace, ledger, homeserverOptions, homeserver, ghosts };
}

function claimedBy<Request extends ClaimRequest, Row, Rest>(
  ownership: Ownership,
  rows: Rest & { readonly claim: (request: Request) => Promise<Row[]> },
): Rest & { readonly claim: (request: Request) => Promise<Row[]> } {
  const claim = async (request: Request) => {
    const { claimant } = ownership;
    return claimant === undefined ? [] : await rows.claim({ ...request, ...claimant });
  };
  return { ...rows, claim };
}
