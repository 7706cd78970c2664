// What ghosts do about rooms: answer invitations by policy, read a joined room's state, leave empty rooms.
// Invariants: only who may ask an agent may bring its ghost into a room; one server's invitations take a share of the
// queue; a ghost without an agent holds its invitations; what repeating cannot change ends a task, all else is retried
// with growing waits; a refusal of the ghost itself is no answer about a room.
import type { Logger } from "pino";
import type { Clock } from "../../domain/clock.ts";
import { errorName } from "../../domain/errors.ts";
import { type ServerName, serverOf } from "../../domain/identifiers.ts";
import type { UnknownObject } from "../../domain/json.ts";
import { backoffMs } from "../../runtime/backoff.ts";
import { WorkQueue } from "../../runtime/work-loop.ts";
import type { AgentDirectory, AgentTarget } from "../agents/loaded-agents.ts";
import { isSenderAllowed } from "../agents/sender-policy.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { ClaimedMembership } from "../ledger/memberships.ts";
import type { Ghosts } from "./ghosts.ts";
import type { Homeserver } from "./homeserver.ts";
import type { GhostActor } from "./http.ts";
import type { Failure, Outcome } from "./request-result.ts";

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

export interface MembershipDependencies {
  readonly ledger: Pick<Ledger, "memberships">;
  readonly homeserver: Homeserver;
  readonly ghosts: Ghosts;
  readonly agents: Pick<AgentDirectory, "current">;
  readonly clock: Clock;
  readonly log: Logger;
}

export function createMembershipQueue(deps: MembershipDependencies): WorkQueue<ClaimedMembership> {
  const { ledger, agents, clock, log } = deps;
  /** The ghosts whose held invitations were queued. */
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
      await new MembershipTask(deps, membership, draining).run().finally(() => count(membership, -1));
    },
    onError: (error) => log.warn({ err: errorName(error) }, "memberships could not be worked on"),
  });
}

class MembershipTask {
  readonly #deps: MembershipDependencies;
  readonly #membership: ClaimedMembership;
  readonly #signal: AbortSignal | undefined;

  constructor(deps: MembershipDependencies, membership: ClaimedMembership, signal: AbortSignal | undefined) {
    this.#deps = deps;
    this.#membership = membership;
    this.#signal = signal;
  }

  async run(): Promise<void> {
    switch (this.#membership.task) {
      case "answer_invite":
        return this.#answerInvite();
      case "settle":
        return this.#settle();
      case "leave":
        return this.#leave();
    }
  }

  async #answerInvite(): Promise<void> {
    const { homeserver, ledger, clock } = this.#deps;
    const { ghost, roomId, inviter, attempts } = this.#membership;
    const target = await this.#target();
    if (target === undefined) {
      await ledger.memberships.holdInvitation(this.#membership, clock.now());
      this.#note("invitation held, because no agent has the ghost");
      // The queue may have looked for held invitations just before.
      if (await this.#target()) await ledger.memberships.answerHeldInvitations([ghost], clock.now());
      return;
    }
    if (inviter === undefined || !isSenderAllowed(target.entry, inviter)) {
      this.#note("invitation refused by policy");
      return this.#leave();
    }
    const joined = await this.#acting((actor) => homeserver.join(actor, roomId, [serverOf(inviter)]));
    if (joined.kind === "ok") {
      await ledger.memberships.recordJoined(this.#membership, clock.now());
      return this.#note("joined");
    }
    const attemptsMax = joined.kind === "retry" ? JOIN_ATTEMPTS_MAX : refusalsMax(joined);
    // Neither is an answer about the room.
    const isOurs =
      joined.kind === "retry" && (joined.cause === "ghost_refused" || joined.cause === "stopped");
    return !isOurs && attempts >= attemptsMax ? this.#leave() : this.#defer(joined);
  }

  async #target(): Promise<AgentTarget | undefined> {
    return (await this.#deps.agents.current()).byGhost.get(this.#membership.ghost);
  }

  async #settle(): Promise<void> {
    const { homeserver, ledger, clock } = this.#deps;
    const { ghost, roomId } = this.#membership;
    const members = await this.#acting((actor) => homeserver.joinedMembers(actor, roomId));
    if (members.kind !== "ok") return this.#cannotSettle(members);
    // A homeserver lets a bridge see who is in a room as long as one of its ghosts is.
    if (!members.value.includes(ghost)) return this.#isOut({ members: members.value.length });
    const state = await this.#acting((actor) => homeserver.stateEvent(actor, roomId, "m.room.encryption"));
    if (state.kind !== "ok") return this.#cannotSettle(state);
    const facts = { encrypted: state.value !== undefined, members: members.value };
    await ledger.memberships.recordRoomFacts(this.#membership, facts, clock.now());
    this.#note("settled", { encrypted: facts.encrypted, members: facts.members.length });
  }

  #cannotSettle(outcome: Failure): Promise<void> {
    return outcome.kind === "retry" ? this.#defer(outcome) : this.#isOut({ errcode: outcome.errcode });
  }

  async #isOut(why: UnknownObject): Promise<void> {
    await this.#recordLeft();
    this.#note("found to have ended", why);
  }

  async #leave(): Promise<void> {
    const left = await this.#acting((actor) => this.#deps.homeserver.leave(actor, this.#membership.roomId));
    if (left.kind === "retry") return this.#defer(left);
    await this.#recordLeft();
    this.#note("left");
  }

  #recordLeft(): Promise<void> {
    const { ledger, clock } = this.#deps;
    return ledger.memberships.recordLeft(this.#membership, clock.now());
  }

  async #defer(outcome: Failure): Promise<void> {
    const { ledger, clock } = this.#deps;
    const askedMs = outcome.kind === "retry" ? outcome.afterMs : 0;
    const isStopped = outcome.kind === "retry" && outcome.cause === "stopped";
    const waitMs = isStopped ? 0 : backoffMs(BACKOFF, this.#membership.attempts, askedMs);
    await ledger.memberships.defer(this.#membership, clock.now() + waitMs);
    this.#note("deferred", { why: outcome.kind === "retry" ? outcome.cause : outcome.errcode, waitMs });
  }

  #acting<T>(action: (actor: GhostActor) => Promise<Outcome<T>>): Promise<Outcome<T>> {
    return this.#deps.ghosts.acting(this.#membership.ghost, action, this.#signal);
  }

  #note(what: string, more: UnknownObject = {}): void {
    const { roomId, ghost, task, attempts } = this.#membership;
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
