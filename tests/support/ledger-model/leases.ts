// The part of the reference model that says who may work on what: claims, leases and their fences.
// Invariants: as in rows.ts; a room's head is claimed, and what rooms are past when it is due; a claim that is not the
// present one is lost.
import { type Claim, type Delegation, isDelegation, isOpen } from "./entities.ts";
import { ModelRows } from "./rows.ts";

export class ModelLeases extends ModelRows {
  /** What a worker may claim now, in any order. */
  claimable(now: number): Set<string> {
    const due = [...this.delegations.values()].filter((one) => one.dueAt !== null && one.dueAt <= now);
    const heads = [...this.rooms.values()].flatMap(({ line: [head], turnAt }) =>
      head !== undefined && isDelegation(head) && turnAt <= now && (head.leaseUntil ?? 0) <= now ? head : [],
    );
    return new Set([...due, ...heads].map(({ key }) => key));
  }

  claimed(key: string, holder: string, now: number, until: number): Delegation {
    const one = this.delegations.get(key) as Delegation;
    if (one.state === "queued" || (one.state === "awaiting_input" && one.hasPrompt))
      one.state = "dispatching";
    Object.assign(one, { holder, leaseUntil: until, fence: one.fence + 1 });
    one.triedAt ??= now;
    if (one.dueAt !== null) one.dueAt = until;
    else this.room(one.room).turnAt = until;
    return one;
  }

  /** The delegation that the claim entitles its holder to write. */
  held({ key, holder, fence }: Claim): Delegation | undefined {
    const one = this.delegations.get(key);
    return one?.holder === holder && one.fence === fence && isOpen(one) ? one : undefined;
  }

  renew(claim: Claim, until: number): { held: boolean; canceled: boolean } {
    const one = this.held(claim);
    if (one === undefined) return { held: false, canceled: false };
    one.leaseUntil = until;
    if (one.dueAt !== null) one.dueAt = until;
    else if (this.isHead(one)) this.room(one.room).turnAt = until;
    return { held: true, canceled: one.cancel !== null };
  }

  /** Gives the lease back until `wakeAt`. @param undelivered the agent has nothing of this try */
  release(claim: Claim, wakeAt: number, attempts: number, undelivered: boolean): "lost" | undefined {
    const one = this.held(claim);
    if (one === undefined) return "lost";
    const isLate = one.triedAt !== null && wakeAt > one.triedAt + this.gateMs;
    Object.assign(one, { holder: null, leaseUntil: null, attempts: one.attempts + attempts });
    if (undelivered) one.unsettled = false;
    if (one.state === "dispatching" && one.task === null && !one.unsettled) one.state = "queued";
    const room = this.room(one.room);
    if (one.state === "awaiting_input" && (one.hasPrompt || one.cancel !== null)) one.dueAt = 0;
    else if (one.dueAt !== null) one.dueAt = wakeAt;
    else if (isLate) {
      one.dueAt = wakeAt;
      this.leave(one, (one.triedAt ?? 0) + this.gateMs);
    } else if (room.line[0] === one) room.turnAt = wakeAt;
    return undefined;
  }
}
