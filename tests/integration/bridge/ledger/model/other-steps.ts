// The steps of a run besides those of delegations: of intake envelopes, notices, status messages, retention and time.
import assert from "node:assert/strict";
import type { ClaimedIntakeEnvelope } from "../../../../../src/bridge/ledger/envelopes.ts";
import type { ClaimedNotice } from "../../../../../src/bridge/ledger/notices.ts";
import type { AgentId, EventId, UserId } from "../../../../../src/domain/identifiers.ts";
import { asking, job, LEASE_MS } from "../../../../support/ledger.ts";
import type { Fault } from "./faulty-pool.ts";
import { agentOf, type Envelope, keyOf, type Notice } from "./rows.ts";
import { envelopeClaim, GHOSTS, LIMITS, ROOMS, recent, type World } from "./world.ts";

/** Rows that ended longer ago are deleted. */
const KEPT_MS = 3_600_000;
const FOREVER_MS = 1e12;

export interface OtherSteps {
  claim_envelopes: { limit: number; fault?: Fault };
  derive: { which: number; ghosts: number; fault?: Fault };
  expire: { which: number; reason: "key_wait_elapsed" | "undecryptable"; fault?: Fault };
  put_off: { which: number; ms: number; fault?: Fault };
  wake: { room: number };
  claim_notices: { limit: number; fault?: Fault };
  notice: { which: number; how: "attempted" | "sent" | "dropped" | "deferred"; fault?: Fault };
  claim_statuses: { limit: number };
  status: { which: number; how: "attempted" | "shown" | "ended"; fault?: Fault };
  prune: Record<string, never>;
  wait: { ms: number };
}

export const OTHER_STEPS: {
  [Kind in keyof OtherSteps]: (w: World, step: OtherSteps[Kind]) => Promise<unknown>;
} = {
  claim_envelopes: async (w, { limit, fault }) => {
    const due = w.model.dueEnvelopes(w.now);
    const until = w.now + LEASE_MS;
    const { value, fired } = await w.attempt(fault, () =>
      w.ledger.envelopes.claim({ limit, now: w.now, leaseUntil: until }),
    );
    const tables = await w.read();
    const taken = tables.envelopes.filter(
      ({ event, fence }) => w.model.envelopes.get(event)?.fence === fence - 1,
    );
    for (const { event } of taken)
      assert.ok(due.has(event), `${event} was claimed, but only ${[...due]} may be`);
    const claimed = taken.map(({ event }) => w.model.claimedEnvelope(event, until));
    // Places are given up in a transaction of its own: after a crash it may not have happened.
    const isGivenUp = (one: Envelope) => !tables.rooms.some(({ line }) => line.includes(one.event));
    for (const one of claimed) if (fired === undefined || isGivenUp(one)) w.model.giveUpPlace(one, w.now);
    if (fired !== undefined) return;
    const found = value as ClaimedIntakeEnvelope[];
    assert.deepEqual(found.map(({ event }) => event).sort(), taken.map(({ event }) => event).sort());
    assert.equal(taken.length, Math.min(limit, due.size));
    w.envelopes.push(...found);
  },
  derive: async (w, { which, ghosts, fault }) => {
    const one = recent(w.envelopes, which);
    if (one === undefined) return;
    const asked = GHOSTS.slice(0, ghosts);
    const jobs = asked.map((ghost) =>
      job(one.event.slice(1), {
        room: one.room,
        ghost,
        agent: agentOf(ghost) as AgentId,
        sender: one.sender as UserId,
      }),
    );
    const call = async () => {
      const { admitted } = await w.ledger.envelopes.derive(one, asking(one, jobs, LIMITS), w.now);
      return { admitted };
    };
    await w.perform(fault, call, () => w.model.derive(envelopeClaim(one), asked, w.now));
  },
  expire: async (w, { which, reason, fault }) => {
    const one = recent(w.envelopes, which);
    if (one === undefined) return;
    const call = () => w.ledger.envelopes.expire(one, reason, w.now);
    await w.perform(fault, call, () => w.model.expire(envelopeClaim(one), reason, w.now));
  },
  put_off: async (w, { which, ms, fault }) => {
    const one = recent(w.envelopes, which);
    if (one === undefined) return;
    const call = () => w.ledger.envelopes.defer(one, w.now + ms, { requested: true });
    await w.perform(fault, call, () => w.model.putOff(envelopeClaim(one), w.now + ms));
  },
  wake: async (w, { room }) => {
    const where = ROOMS[room] as (typeof ROOMS)[number];
    await w.perform(
      undefined,
      () => w.ledger.envelopes.wake([where], w.now),
      () => w.model.wake(where, w.now),
    );
  },
  claim_notices: async (w, { limit, fault }) => {
    const due = w.model.notices.filter(({ dueAt }) => dueAt !== null && dueAt <= w.now);
    const request = { limit, now: w.now, leaseUntil: w.now + LEASE_MS, holder: "a worker" };
    const { value, fired } = await w.attempt(fault, () => w.ledger.notices.claim(request));
    const tables = await w.read();
    const taken = w.model.notices.filter(({ fence }, index) => tables.notices[index]?.fence === fence + 1);
    for (const one of taken) {
      assert.ok(due.includes(one));
      Object.assign(one, { isHeld: true, dueAt: request.leaseUntil, fence: one.fence + 1 });
    }
    if (fired !== undefined) return;
    const found = value as ClaimedNotice[];
    assert.deepEqual([found.length, taken.length], [Math.min(limit, due.length), found.length]);
    for (const claimed of found) {
      const notice = w.model.notices[tables.noticeIds.indexOf(claimed.noticeId)] as Notice;
      w.notices.push({ claimed, notice });
    }
  },
  notice: async (w, { which, how, fault }) => {
    const one = recent(w.notices, which);
    if (one === undefined) return;
    const { claimed, notice } = one;
    const fence = Number(claimed.fence);
    const { notices } = w.ledger;
    const isHeld = () =>
      w.model.notices.includes(notice) && notice.state === "pending" && notice.fence === fence;
    if (how === "attempted") {
      await w.perform(
        fault,
        () => notices.recordAttempt(claimed, w.now),
        () => (isHeld() ? undefined : "lost"),
      );
      return;
    }
    const later = w.now + LEASE_MS;
    const call = () =>
      how === "sent"
        ? notices.recordSent(claimed, `$notice-${claimed.noticeId}` as EventId)
        : how === "dropped"
          ? notices.drop(claimed)
          : notices.defer(claimed, later);
    await w.perform(fault, call, () => w.model.settleNotice(notice, fence, how === "deferred" ? later : how));
  },
  claim_statuses: async (w, { limit }) => {
    w.model.findStatuses(w.now);
    const due = [...w.model.statuses.values()].filter(({ dueAt }) => dueAt <= w.now);
    const request = { limit, now: w.now, leaseUntil: w.now + LEASE_MS, holder: "a worker" };
    const found = await w.ledger.statuses.claim(request);
    assert.equal(found.length, Math.min(limit, due.length));
    for (const claimed of found) {
      const key = keyOf(claimed.sourceEventId, claimed.ghost);
      const status = w.model.statuses.get(key);
      assert.ok(status !== undefined && due.includes(status), key);
      assert.equal(claimed.state, w.model.delegations.get(key)?.state);
      Object.assign(status, { isHeld: true, dueAt: request.leaseUntil, fence: status.fence + 1 });
      w.statuses.push({ claimed, key });
    }
  },
  status: async (w, { which, how, fault }) => {
    const one = recent(w.statuses, which);
    if (one === undefined) return;
    const { claimed, key } = one;
    const { statuses } = w.ledger;
    const own = () => {
      const status = w.model.statuses.get(key);
      return status?.fence === Number(claimed.fence) ? status : undefined;
    };
    if (how === "ended") {
      await w.perform(
        fault,
        () => statuses.end(claimed),
        () => void (own() && w.model.statuses.delete(key)),
      );
      return;
    }
    if (one.isAttempted !== true) {
      const attempt = () => statuses.recordAttempt(claimed, w.now);
      const attempted = await w.perform(undefined, attempt, () => (own() === undefined ? "lost" : undefined));
      if (attempted === "lost") return;
      one.isAttempted = true;
    }
    if (how === "attempted") return;
    const event = `$status-${w.name()}` as EventId;
    const shown = { eventId: event, digest: "digest", pinned: false };
    const dueAt = w.now + LEASE_MS;
    await w.perform(
      fault,
      () => statuses.recordShown(claimed, shown, dueAt),
      () => w.model.shown(key, Number(claimed.fence), event, dueAt),
    );
  },
  prune: async (w) => {
    const times = {
      delegations: KEPT_MS,
      notices: KEPT_MS,
      audit: FOREVER_MS,
      rooms: FOREVER_MS,
      sessions: FOREVER_MS,
      contexts: KEPT_MS,
    };
    const never = {
      handledEvents: FOREVER_MS,
      malformedEvents: FOREVER_MS,
      messageIndices: FOREVER_MS,
      deviceInbox: FOREVER_MS,
    };
    await w.ledger.retention.round({ ...times, ...never }, { now: () => w.now });
    const { delegations } = await w.read();
    w.model.prune(w.now - KEPT_MS, new Set(delegations.map(({ key }) => key)));
  },
  wait: async (w, { ms }) => {
    w.now += ms;
  },
};
