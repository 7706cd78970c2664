// What ghosts do about rooms: answer invitations by policy, read a joined room's state, leave empty rooms.
// Invariants:
// - only who may ask an agent may bring its ghost into a room; every other invitation of its ghost is refused;
// - the invitations of one server take a share of the queue, so that others do not wait for a server that sends many;
// - an invitation of a ghost that has lost its agent is held, and answered when an agent has the ghost again;
// - each task can be repeated: joining where one is joined and leaving where one is not are success;
// - an answer of the homeserver that repeating cannot change ends the task, everything else is retried
//   with growing waits; nothing is retried in a hot loop;
// - a refusal of the ghost itself is no answer about a room: it waits for the operator.
import type { Logger } from "pino";
import type { Clock } from "../../domain/clock.ts";
import { errorName } from "../../domain/errors.ts";
import {
  type GhostMxid,
  type RoomId,
  type ServerName,
  serverOf,
  type UserId,
} from "../../domain/identifiers.ts";
import type { UnknownObject } from "../../domain/json.ts";
import { backoffMs } from "../../runtime/backoff.ts";
import { WorkQueue } from "../../runtime/work-loop.ts";
import type { AgentDirectory } from "../agents/loaded-agents.ts";
import { isSenderAllowed } from "../agents/sender-policy.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { ClaimedMembership } from "../ledger/memberships.ts";
import type { Ghosts } from "./ghosts.ts";
import type { Homeserver } from "./homeserver.ts";
import type { Outcome } from "./request-result.ts";

const BATCH = 16;
/** How many of these may be invitations of one server. */
const SERVER_SHARE = BATCH / 4;
const LEASE_MS = 3 * 60_000;
const BACKOFF = { firstMs: 2_000, maxMs: 10 * 60_000 };
/** About four hours of a room's own servers failing; then the invitation is refused. */
const JOIN_ATTEMPTS_MAX = 30;
/** About eight minutes of nobody having the room. */
const NOT_FOUND_ATTEMPTS_MAX = 8;
/** Half a minute of not being invited, as the own homeserver has it. */
const FORBIDDEN_ATTEMPTS_MAX = 4;

export interface MembershipDependencies {
  readonly ledger: Pick<Ledger, "memberships">;
  readonly homeserver: Homeserver;
  readonly ghosts: Ghosts;
  readonly agents: Pick<AgentDirectory, "current">;
  readonly clock: Clock;
  readonly log: Logger;
  /** Called before it is recorded that a ghost is in a room no more. */
  readonly onLeft?: ((ghost: GhostMxid, room: RoomId) => Promise<void>) | undefined;
}

/** The queue of what ghosts have to do about their memberships. */
export function createMembershipQueue(deps: MembershipDependencies): WorkQueue<ClaimedMembership> {
  const { ledger, agents, clock, log } = deps;
  const tasks = new MembershipTasks(deps);
  /** The ghosts with agents whose held invitations were queued. */
  let queued = "";
  const inProgress = new Map<ServerName, number>();
  const count = ({ invitingServer: server }: ClaimedMembership, more: 1 | -1) => {
    if (server === undefined) return;
    const now = (inProgress.get(server) ?? 0) + more;
    if (now > 0) inProgress.set(server, now);
    else inProgress.delete(server);
  };
  return new WorkQueue({
    clock,
    concurrency: BATCH,
    claim: async (limit) => {
      const now = clock.now();
      const ghosts = [...(await agents.current()).byGhost.keys()];
      if (ghosts.join() !== queued) {
        await ledger.memberships.answerHeldInvitations(ghosts, now);
        queued = ghosts.join();
      }
      const share = { most: SERVER_SHARE, inProgress };
      return ledger.memberships.claim({ limit, now, leaseUntil: now + LEASE_MS, share });
    },
    work: async (membership, draining) => {
      count(membership, 1);
      await tasks.work(membership, draining).finally(() => count(membership, -1));
    },
    onError: (error) => log.warn({ err: errorName(error) }, "memberships could not be worked on"),
  });
}

class MembershipTasks {
  readonly #deps: MembershipDependencies;

  constructor(deps: MembershipDependencies) {
    this.#deps = deps;
  }

  async work(membership: ClaimedMembership, signal?: AbortSignal): Promise<void> {
    switch (membership.task) {
      case "answer_invite":
        return this.#answerInvite(membership, signal);
      case "settle":
        return this.#settle(membership, signal);
      case "leave":
        return this.#leave(membership, signal);
    }
  }

  async #answerInvite(membership: ClaimedMembership, signal?: AbortSignal): Promise<void> {
    const { ghosts, homeserver, ledger, clock } = this.#deps;
    const { ghost, roomId, inviter, attempts } = membership;
    if (!(await this.#hasAgent(ghost))) {
      await ledger.memberships.holdInvitation(membership, clock.now());
      this.#note(membership, "invitation held, because no agent has the ghost");
      // The queue may have looked for held invitations just before.
      if (await this.#hasAgent(ghost)) await ledger.memberships.answerHeldInvitations([ghost], clock.now());
      return;
    }
    if (inviter === undefined || !(await this.#mayInvite(ghost, inviter))) {
      this.#note(membership, "invitation refused by policy");
      return this.#leave(membership, signal);
    }
    const joined = await ghosts.acting(
      ghost,
      (actor) => homeserver.join(actor, roomId, [serverOf(inviter)]),
      signal,
    );
    if (joined.kind === "ok") {
      await ledger.memberships.recordJoined(membership, clock.now());
      return this.#note(membership, "joined");
    }
    const attemptsMax = joined.kind === "retry" ? JOIN_ATTEMPTS_MAX : refusalsMax(joined);
    // Neither is an answer about the room.
    const isOurs =
      joined.kind === "retry" && (joined.cause === "ghost_refused" || joined.cause === "stopped");
    const hopeless = !isOurs && attempts >= attemptsMax;
    return hopeless ? this.#leave(membership, signal) : this.#defer(membership, joined);
  }

  async #hasAgent(ghost: GhostMxid): Promise<boolean> {
    return (await this.#deps.agents.current()).byGhost.has(ghost);
  }

  /** Whether this user may ask this ghost's agent, by agents.yaml as it is now. */
  async #mayInvite(ghost: GhostMxid, inviter: UserId): Promise<boolean> {
    const target = (await this.#deps.agents.current()).byGhost.get(ghost);
    return target !== undefined && isSenderAllowed(target.entry, inviter);
  }

  async #settle(membership: ClaimedMembership, signal?: AbortSignal): Promise<void> {
    const { ghosts, homeserver, ledger, clock } = this.#deps;
    const { ghost, roomId } = membership;
    const members = await ghosts.acting(ghost, (actor) => homeserver.joinedMembers(actor, roomId), signal);
    if (members.kind !== "ok") return this.#cannotSettle(membership, members);
    // A homeserver lets a bridge see who is in a room as long as one of its ghosts is.
    if (!members.value.includes(ghost)) return this.#isOut(membership, { members: members.value.length });
    const encryption = await ghosts.acting(
      ghost,
      (actor) => homeserver.stateEvent(actor, roomId, "m.room.encryption"),
      signal,
    );
    if (encryption.kind !== "ok") return this.#cannotSettle(membership, encryption);
    const facts = { encrypted: encryption.value !== undefined, members: members.value };
    await ledger.memberships.recordRoomFacts(membership, facts, clock.now());
    this.#note(membership, "settled", { encrypted: facts.encrypted, members: facts.members.length });
  }

  /** Refused: the ghost is no longer in the room. */
  async #cannotSettle(
    membership: ClaimedMembership,
    outcome: Exclude<Outcome<unknown>, { kind: "ok" }>,
  ): Promise<void> {
    return outcome.kind === "retry"
      ? this.#defer(membership, outcome)
      : this.#isOut(membership, { errcode: outcome.errcode });
  }

  async #isOut(membership: ClaimedMembership, why: UnknownObject): Promise<void> {
    await this.#recordLeft(membership);
    this.#note(membership, "found to have ended", why);
  }

  async #leave(membership: ClaimedMembership, signal?: AbortSignal): Promise<void> {
    const { ghosts, homeserver } = this.#deps;
    const left = await ghosts.acting(
      membership.ghost,
      (actor) => homeserver.leave(actor, membership.roomId),
      signal,
    );
    if (left.kind === "retry") return this.#defer(membership, left);
    await this.#recordLeft(membership);
    this.#note(membership, "left");
  }

  async #recordLeft(membership: ClaimedMembership): Promise<void> {
    await this.#deps.onLeft?.(membership.ghost, membership.roomId);
    await this.#deps.ledger.memberships.recordLeft(membership, this.#deps.clock.now());
  }

  async #defer(
    membership: ClaimedMembership,
    outcome: Exclude<Outcome<unknown>, { kind: "ok" }>,
  ): Promise<void> {
    const askedMs = outcome.kind === "retry" ? outcome.afterMs : 0;
    const isStopped = outcome.kind === "retry" && outcome.cause === "stopped";
    const waitMs = isStopped ? 0 : backoffMs(BACKOFF, membership.attempts, askedMs);
    await this.#deps.ledger.memberships.defer(membership, this.#deps.clock.now() + waitMs);
    const why = outcome.kind === "retry" ? outcome.cause : outcome.errcode;
    this.#note(membership, "deferred", { why, waitMs });
  }

  #note(membership: ClaimedMembership, what: string, more: UnknownObject = {}): void {
    const { roomId, ghost, task, attempts } = membership;
    this.#deps.log.info({ roomId, ghost, task, attempts, ...more }, `membership ${what}`);
  }
}

/** How often a join is tried again after this refusal. */
function refusalsMax({ status, errcode }: { readonly status: number; readonly errcode: string }): number {
  // A homeserver does not know the members of a room that it has just joined itself.
  if (status === 404) return NOT_FOUND_ATTEMPTS_MAX;
  // Withdrawn, banned, or closed to this server; or this homeserver is in the room, and the invitation of
  // another one, which comes ahead of the room's events, is not part of the room yet.
  if (errcode === "M_FORBIDDEN") return FORBIDDEN_ATTEMPTS_MAX;
  // Such as M_UNSUPPORTED_ROOM_VERSION: it will never take part.
  return 0;
}
