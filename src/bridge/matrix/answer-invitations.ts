// What ghosts do about rooms: answer invitations by policy, read a joined room's state, leave empty rooms.
// Invariants: only who may ask an agent may bring its ghost into a room; one server's invitations take a share of the
// queue, and so do those of all servers together that no agent allows; what repeating cannot change ends a task, all else
// is retried with growing waits; a refusal of the ghost itself is no answer about a room.
import type { Logger } from "pino";
import type { Clock } from "../../domain/clock.ts";
import { errorName } from "../../domain/errors.ts";
import { parseMember, serverOf } from "../../domain/identifiers.ts";
import type { UnknownObject } from "../../domain/json.ts";
import { backoffMs } from "../../runtime/backoff.ts";
import { WorkQueue } from "../../runtime/work-queue.ts";
import type { AgentDirectory } from "../agents/loaded-agents.ts";
import { isSenderAllowed, serversAllowed } from "../agents/sender-policy.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { ClaimedMembership } from "../ledger/memberships.ts";
import { dueNow } from "../ledger/postgres.ts";
import type { Ghosts } from "./ghosts.ts";
import type { Homeserver } from "./homeserver.ts";
import type { GhostActor } from "./http.ts";
import { type Failure, type Outcome, type Refused, reasonOf } from "./request-result.ts";

const BATCH = 16;
const SERVER_SHARE = BATCH / 4;
const LEASE_MS = 3 * 60_000;
const BACKOFF = { firstMs: 2_000, maxMs: 10 * 60_000 };
/** About four hours of a room's own servers failing; then the invitation is refused. */
const JOIN_ATTEMPTS_MAX = 30;
/** About eight minutes of nobody having the room. */
const NOT_FOUND_ATTEMPTS_MAX = 8;
/** Half a minute of not being invited, as the own homeserver has it. */
const FORBIDDEN_ATTEMPTS_MAX = 4;
/** Half a minute of no agent having the ghost: another process may have read a newer agents.yaml than this one. */
const NO_AGENT_ATTEMPTS_MAX = 4;

export interface MembershipDependencies {
  readonly ledger: Pick<Ledger, "memberships">;
  readonly homeserver: Homeserver;
  readonly ghosts: Ghosts;
  readonly agents: Pick<AgentDirectory, "current">;
  readonly clock: Clock;
  readonly log: Logger;
  /** Called before it is recorded that a ghost is in a room no more. */
  readonly onLeft?: (membership: ClaimedMembership) => Promise<void>;
  readonly onError?: (error: unknown) => void;
}

export function createMembershipQueue(deps: MembershipDependencies): WorkQueue<ClaimedMembership> {
  const { ledger, agents, clock, log } = deps;
  return new WorkQueue({
    clock,
    concurrency: BATCH,
    claim: async (limit, claimed) => {
      const allowed = serversAllowed(await agents.current());
      const inProgress = claimed.flatMap(({ invitingServer }) => invitingServer ?? []);
      const share = { most: SERVER_SHARE, inProgress };
      return ledger.memberships.claim({ ...dueNow(clock, limit, LEASE_MS), share, allowed });
    },
    work: (membership, draining) => doTask(deps, membership, draining),
    putOff: (one) => ledger.memberships.defer(one, clock.now() + backoffMs(BACKOFF, one.attempts)),
    onError: (error) => {
      log.warn({ err: errorName(error) }, "memberships could not be worked on");
      deps.onError?.(error);
    },
  });
}

async function doTask(
  { ledger, homeserver, ghosts, agents, clock, log, onLeft }: MembershipDependencies,
  membership: ClaimedMembership,
  signal: AbortSignal | undefined,
): Promise<void> {
  const { memberships } = ledger;
  const { ghost, roomId, inviter, task, attempts } = membership;
  const acting = <T>(action: (actor: GhostActor) => Promise<Outcome<T>>) =>
    ghosts.acting(ghost, action, signal);
  const note = (what: string, more: UnknownObject = {}) =>
    log.info({ roomId, ghost, task, attempts, ...more }, `membership ${what}`);

  const deferBy = async (waitMs: number, why: string) => {
    await memberships.defer(membership, clock.now() + waitMs);
    note("deferred", { why, waitMs });
  };
  const defer = (outcome: Failure) => {
    const { cause, afterMs } = outcome.kind === "retry" ? outcome : { cause: undefined, afterMs: 0 };
    return deferBy(cause === "stopped" ? 0 : backoffMs(BACKOFF, attempts, afterMs), reasonOf(outcome));
  };

  const recordLeft = async () => {
    await onLeft?.(membership);
    await memberships.recordLeft(membership, clock.now());
  };

  const leave = async () => {
    const left = await acting((actor) => homeserver.leave(actor, roomId));
    // A ghost whose account is refused for good would else keep its invitation, and the row, for ever.
    const isGivenUp = task === "answer_invite" && attempts >= JOIN_ATTEMPTS_MAX;
    if (left.kind === "retry" && !(isGivenUp && left.cause === "ghost_refused")) return defer(left);
    await recordLeft();
    note("left");
  };

  const isOut = async (why: UnknownObject) => {
    await recordLeft();
    note("found to have ended", why);
  };
  const cannotSettle = (outcome: Failure) =>
    outcome.kind === "retry" ? defer(outcome) : isOut({ errcode: outcome.errcode });

  const settle = async () => {
    const members = await acting((actor) => homeserver.joinedMembers(actor, roomId, parseMember));
    if (members.kind !== "ok") return cannotSettle(members);
    // A homeserver lets a bridge see who is in a room as long as one of its ghosts is.
    if (!members.value.includes(ghost)) return isOut({ members: members.value.length });
    const state = await acting((actor) => homeserver.stateEvent(actor, roomId, "m.room.encryption"));
    if (state.kind !== "ok") return cannotSettle(state);
    const facts = { encrypted: state.value !== undefined, members: members.value };
    await memberships.recordRoomFacts(membership, facts, clock.now());
    note("settled", { encrypted: facts.encrypted, members: facts.members.length });
  };

  /** The homeserver passes on invitations of ghosts that are in the room, which refusing would be leaving it. */
  const refuse = async () => {
    const members = await acting((actor) => homeserver.joinedMembers(actor, roomId, parseMember));
    if (members.kind === "retry" && members.cause !== "ghost_refused") return defer(members);
    if (members.kind !== "ok" || !members.value.includes(ghost)) return leave();
    await memberships.recordJoined(membership, clock.now());
    note("found to be a member");
  };

  const answerInvite = async () => {
    const target = (await agents.current()).byGhost.get(ghost);
    if (target === undefined && attempts < NO_AGENT_ATTEMPTS_MAX)
      return deferBy(backoffMs(BACKOFF, attempts), "no agent has the ghost");
    if (target === undefined || inviter === undefined || !isSenderAllowed(target.entry, inviter)) {
      note("invitation refused by policy");
      return refuse();
    }
    const joined = await acting((actor) => homeserver.join(actor, roomId, [serverOf(inviter)]));
    if (joined.kind === "ok") {
      await memberships.recordJoined(membership, clock.now());
      return note("joined");
    }
    // Neither is an answer about the room.
    if (joined.kind === "retry" && ["ghost_refused", "stopped"].includes(joined.cause)) return defer(joined);
    const attemptsMax = joined.kind === "retry" ? JOIN_ATTEMPTS_MAX : refusalsMax(joined);
    return attempts >= attemptsMax ? refuse() : defer(joined);
  };

  return { answer_invite: answerInvite, settle, leave }[task]();
}

function refusalsMax({ status, errcode }: Refused): number {
  // A homeserver does not know the members of a room that it has just joined itself.
  if (status === 404) return NOT_FOUND_ATTEMPTS_MAX;
  // Withdrawn, banned, or closed to this server; or this homeserver is in the room, and the invitation of
  // another one, which comes ahead of the room's events, is not part of the room yet.
  if (errcode === "M_FORBIDDEN") return FORBIDDEN_ATTEMPTS_MAX;
  // Such as M_UNSUPPORTED_ROOM_VERSION: it will never take part.
  return 0;
}
