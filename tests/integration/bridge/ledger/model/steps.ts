// The steps of a run: each is data, so that a run is printed, repeated and shrunk, and one call or a few calls of the
// ledger as a worker makes them. A worker can die between two calls, and a call can fail at a statement.
import assert from "node:assert/strict";
import type {
  Admission,
  Derived,
  NewDelegation,
  NewIntakeEnvelope,
} from "../../../../../src/bridge/ledger/admission-types.ts";
import type { ClaimedDelegation } from "../../../../../src/bridge/ledger/leases.ts";
import type { DelegationState } from "../../../../../src/bridge/ledger/states.ts";
import type { EventId, GhostMxid, RoomId, UserId } from "../../../../../src/domain/identifiers.ts";
import { arrivals, envelope, job, LEASE_MS, PART } from "../../../../support/ledger.ts";
import type { Fault } from "./faulty-pool.ts";
import { type Arrival, agentOf, type Delegation, keyOf, type Send } from "./rows.ts";
import {
  claimOf,
  ended,
  GHOSTS,
  KEY_WAIT_MS,
  LIMITS,
  MANY,
  OUTCOMES,
  ROOMS,
  recent,
  SENDERS,
  type World,
} from "./world.ts";

export interface Steps {
  admit: { room: number; sender: number; what: readonly number[]; claims?: boolean; fault?: Fault };
  repeat: { which: number };
  answer: { which: number; isRepeated: boolean; fault?: Fault };
  redact: { which: number; fault?: Fault };
  cancel: { which: number; by: "sender" | "operator"; fault?: Fault };
  retry: { which: number };
  claim: { worker: number; limit: number; fault?: Fault };
  hand_over: {
    which: number;
    dies: "begun" | "called" | "never";
    gets: "task" | "question" | "reply";
    fault?: Fault;
  };
  poll: { which: number; gets: "question" | "reply"; fault?: Fault };
  send: { which: number; purpose: "reply" | "question"; dies: "attempted" | "sent" | "never"; fault?: Fault };
  echo: { which: number };
  finish: { which: number; outcome: keyof typeof OUTCOMES; fault?: Fault };
  end_wait: { which: number; fault?: Fault };
  defer: { which: number; ms: number; isUndelivered: boolean; fault?: Fault };
  release: { which: number };
  renew: { which: number };
}

const nothing: Derived = { delegations: [], answers: [], cancels: [], envelopes: [], notices: [] };

/** Of the claims that are held in one of these states, one of the newest; sometimes one that was lost. */
function pick(w: World, which: number, ...states: readonly DelegationState[]): ClaimedDelegation | undefined {
  const held = w.claims.filter((claimed) => w.model.held(claimOf(claimed)) !== undefined);
  const lost = w.claims.filter((claimed) => !held.includes(claimed));
  const fitting = held.filter((claimed) => states.includes(w.model.held(claimOf(claimed))?.state as never));
  const usable = fitting.length > 0 ? fitting : held;
  return recent(lost.length > 0 && which % 4 === 2 ? lost : usable, which);
}

/** @param holder who claims a single question as it is admitted */
async function admitArrivals(w: World, found: readonly Arrival[], fault?: Fault, holder?: string) {
  const events = found.flatMap(
    ({ event, room: where, sender, ghosts }): (NewDelegation | NewIntakeEnvelope)[] => {
      const at = { room: where as RoomId, sender: sender as UserId };
      const name = event.slice(1);
      if (ghosts === undefined) return [envelope(name, { ...at, deadline: w.now + KEY_WAIT_MS })];
      return ghosts.map((who) => job(name, { ...at, ghost: who as GhostMxid, agent: agentOf(who) as never }));
    },
  );
  const leaseUntil = w.now + LEASE_MS;
  const end = (claimed: ClaimedDelegation | undefined) => {
    if (claimed !== undefined) w.claims.push(claimed);
  };
  const slotFor = () => (holder === undefined ? undefined : { holder, leaseUntil, end });
  const options = { ...arrivals(...events), receivedAt: w.now, capacity: LIMITS, slotFor };
  const done = await w.perform(
    fault,
    async () => {
      const { admitted, replayed } = await w.admit([], options);
      return { admitted, replayed };
    },
    () => w.model.admit(found, w.now, KEY_WAIT_MS),
  );
  if (holder === undefined) return done;
  for (const { key, fence } of (await w.read()).delegations) {
    const one = w.model.delegations.get(key);
    if (one?.fence !== fence - 1) continue;
    assert.ok(w.model.isHead(one), `${key} was claimed, and its turn has not come`);
    w.model.claimed(key, holder, w.now, leaseUntil);
  }
  return done;
}

/** A transaction of one event that asks nobody. */
async function admitEvent(
  w: World,
  event: string,
  where: string,
  more: Partial<Admission>,
  derived?: Partial<Derived>,
) {
  return await w.admit([], {
    events: [{ event: event as EventId, room: where as RoomId }],
    about: { rooms: derived === undefined ? [] : [where as RoomId], related: [] },
    derive: () => ({ ...nothing, ...derived }),
    receivedAt: w.now,
    ...more,
  });
}

const all = (w: World): Delegation[] => [...w.model.delegations.values()];
const shown = (sends: readonly Pick<Send, "purpose" | "ordinal">[]) =>
  sends.map(({ purpose, ordinal }) => ({ purpose, ordinal }));

/** What the agent returned is recorded: it took a task, asks something, or has answered. */
async function record(
  w: World,
  one: ClaimedDelegation,
  gets: "task" | "question" | "reply",
  task: string,
  fault?: Fault,
) {
  const { delegations } = w.ledger;
  const { lease, asked } = one;
  const claim = claimOf(one);
  const agent = { contextId: undefined, agentVersion: undefined };
  const sends = (found: Send[] | "canceled" | "lost") => (typeof found === "string" ? found : shown(found));
  if (gets === "task") {
    const call = () => delegations.recordAccepted(lease, { taskId: task, ...agent }, w.now);
    await w.perform(fault, call, () => w.model.accept(claim, task, w.now));
  } else if (gets === "reply") {
    const call = async () => {
      const found = await delegations.recordReply(
        one,
        { parts: [PART, PART], agentVersion: undefined },
        w.now,
      );
      return found === "canceled" ? found : shown(found);
    };
    await w.perform(fault, call, () => sends(w.model.reply(claim, 2, w.now)));
  } else {
    const options = [{ key: "1", value: "one" }];
    const question = {
      parts: [PART],
      options,
      key: `key ${asked}`,
      taskId: task,
      asked,
      until: w.now + LEASE_MS,
      ...agent,
    };
    const call = async () => {
      const found = await delegations.recordQuestion(one, question, w.now);
      return found === "canceled" ? found : shown(found);
    };
    await w.perform(fault, call, () => sends(w.model.ask(claim, asked, 1, task, w.now)));
  }
}

/** What a claim says is what the model says. */
function assertClaimed(found: ClaimedDelegation, one: Delegation): void {
  const answer = one.answerEvent === null ? undefined : `answer ${one.answerEvent}`;
  const prompt = one.hasPrompt ? (answer ?? `prompt of ${one.event.slice(1)}`) : undefined;
  assert.deepEqual(
    {
      prompt: found.prompt?.text,
      task: found.a2aTaskId,
      unsettled: found.a2aUnsettled,
      canceled: found.cancelRequested,
      asked: found.asked,
      fence: Number(found.lease.fence),
    },
    {
      prompt,
      task: one.task ?? undefined,
      unsettled: one.unsettled,
      canceled: one.cancel !== null,
      asked: one.asked,
      fence: one.fence,
    },
  );
}

export const STEPS: { [Kind in keyof Steps]: (w: World, step: Steps[Kind]) => Promise<unknown> } = {
  admit: async (w, { room: r, sender, what, claims = false, fault }) => {
    const at = { room: ROOMS[r] as string, sender: SENDERS[sender] as string };
    const found = what.map((count): Arrival => {
      const isEncrypted = count === 0 && r !== 2;
      return {
        ...at,
        event: `$${w.name()}`,
        ghosts: isEncrypted ? undefined : GHOSTS.slice(0, Math.max(1, count)),
      };
    });
    w.transactions.push(found);
    await admitArrivals(w, found, fault, claims ? "worker 0" : undefined);
  },
  repeat: async (w, { which }) => {
    const found = recent(w.transactions, which);
    if (found !== undefined) await admitArrivals(w, found);
  },
  answer: async (w, { which, isRepeated, fault }) => {
    const asking = all(w).filter(({ asked }) => asked > 0);
    const waiting = asking.filter(({ state }) => state === "awaiting_input");
    const open = waiting.length > 0 && which % 4 !== 2 ? waiting : asking;
    const one = recent(open, which);
    const repeated = isRepeated ? recent(w.answers, which) : undefined;
    const { key, event } = repeated ?? { key: one?.key, event: `$${w.name()}` };
    const asked = w.model.delegations.get(key ?? "");
    if (asked === undefined || key === undefined) return;
    w.answers.push({ key, event });
    const { ghost: who, event: source, room: where } = asked;
    const at = { room: where as RoomId, threadRoot: undefined };
    const answer = { delegation: w.id(key), event: event as EventId, text: `answer ${event}` };
    const answers = [{ ...answer, source: source as EventId, ghost: who as GhostMxid, ...at }];
    const call = async () => (await admitEvent(w, event, where, {}, { answers })).answers;
    await w.perform(fault, call, () => w.model.answer(key, event, w.now));
  },
  redact: async (w, { which, fault }) => {
    const events = [...w.transactions.flat().map(({ event, room: where }) => ({ event, where }))];
    for (const { key, event } of w.answers) {
      const where = w.model.delegations.get(key)?.room;
      if (where !== undefined) events.push({ event, where });
    }
    const one = recent(events, which);
    if (one === undefined) return;
    const by = `$${w.name()}`;
    const redacted = [{ event: one.event as EventId, room: one.where as RoomId }];
    const call = async () => [...(await admitEvent(w, by, one.where, { redacted })).canceled].sort();
    await w.perform(fault, call, () =>
      w.model
        .redact(by, one.event, one.where, w.now)
        .map((key) => w.id(key))
        .sort(),
    );
  },
  cancel: async (w, { which, by, fault }) => {
    const one = recent(all(w), which);
    if (one === undefined) return;
    const { key, room: where } = one;
    if (by === "operator") {
      const call = () => w.operations.cancelDelegation(w.id(key), w.now);
      await w.perform(fault, call, () => w.model.cancelByOperator(key, w.now));
      return;
    }
    const event = `$${w.name()}` as EventId;
    const derived = { cancels: [{ delegation: w.id(key), event }] };
    const call = async () => (await admitEvent(w, event, where, {}, derived)).canceled;
    await w.perform(fault, call, () =>
      w.model.cancelBySender(key, event, w.now).map((marked) => w.id(marked)),
    );
  },
  retry: async (w, { which }) => {
    const one = recent(all(w), which);
    if (one === undefined) return;
    const call = () => w.operations.retryDelegation(w.id(one.key), w.now);
    await w.perform(undefined, call, () => w.model.retry(one.key, w.now));
  },
  claim: async (w, { worker, limit, fault }) => {
    const holder = `worker ${worker}`;
    const claimable = w.model.claimable(w.now);
    const { value, fired } = await w.attempt(fault, () => w.claim({ holder, limit, now: w.now }));
    // Of a claim whose result nobody got, the tables say what it took.
    const { delegations } = await w.read();
    const taken = delegations.filter(({ key, fence }) => w.model.delegations.get(key)?.fence === fence - 1);
    for (const { key } of taken) {
      assert.ok(claimable.has(key), `${key} was claimed, but only ${[...claimable]} may be`);
      w.model.claimed(key, holder, w.now, w.now + LEASE_MS);
    }
    if (fired !== undefined) return;
    const claimed = value as ClaimedDelegation[];
    const keys = claimed.map(({ sourceEventId, ghost: who }) => keyOf(sourceEventId, who));
    assert.deepEqual([...keys].sort(), taken.map(({ key }) => key).sort());
    assert.equal(taken.length, Math.min(limit, claimable.size), `of ${[...claimable]} were claimed: ${keys}`);
    for (const one of claimed) assertClaimed(one, w.model.delegations.get(claimOf(one).key) as Delegation);
    w.claims.push(...claimed);
  },
  hand_over: async (w, { which, dies, gets, fault }) => {
    const one = pick(w, which, "dispatching");
    if (one === undefined) return;
    const call = () => w.ledger.delegations.beginDispatch(one.lease, MANY, w.now);
    const begun = await w.perform(dies === "begun" ? fault : undefined, call, () =>
      w.model.begin(claimOf(one)),
    );
    if (begun !== "begun" || dies === "begun") return;
    await w.compare();
    const task = w.callAgent(one);
    if (dies === "never") await record(w, one, gets, task, fault);
  },
  poll: async (w, { which, gets, fault }) => {
    const one = pick(w, which, "following");
    const task = one && w.model.delegations.get(claimOf(one).key)?.task;
    if (one !== undefined && typeof task === "string") await record(w, one, gets, task, fault);
  },
  send: async (w, { which, purpose, dies, fault }) => {
    const one = pick(w, which, purpose === "reply" ? "reply_pending" : "awaiting_input");
    if (one === undefined) return;
    const { delegations } = w.ledger;
    const claim = claimOf(one);
    const { value: found } = await w.attempt(undefined, () => delegations.pendingSends(one.lease, purpose));
    const expected = w.model.pending(claim, purpose);
    assert.deepEqual(
      typeof found === "string" ? found : shown(found ?? []),
      typeof expected === "string" ? expected : shown(expected),
    );
    const [send] = typeof expected === "string" ? [] : expected;
    const [pending] = typeof found === "string" ? [] : (found ?? []);
    if (send === undefined || pending === undefined || typeof expected === "string") return;
    assert.deepEqual(pending.content, PART.content);
    const { sendId, transactionId: transaction, roomId, ghost: who } = pending;
    const attempted = await w.perform(
      dies === "attempted" ? fault : undefined,
      async () => {
        await delegations.recordAttempt(sendId, w.now);
        return "attempted";
      },
      () => {
        send.attempted = true;
        return "attempted";
      },
    );
    if (attempted === undefined || dies === "attempted") return;
    await w.compare();
    const event = w.sent.get(transaction)?.event ?? (`$sent-${w.name()}` as EventId);
    w.sent.set(transaction, { event, transaction, room: roomId, ghost: who, send });
    if (dies === "sent") return;
    if (purpose === "question") {
      const times = { now: w.now, until: w.now + LEASE_MS };
      const call = () => delegations.recordAsked(one.lease, sendId, event, times);
      await w.perform(fault, call, () => w.model.asked(claim, send));
    } else if (expected.length > 1) {
      await w.perform(
        fault,
        () => delegations.recordSent(sendId, event),
        () => w.model.sent(send),
      );
    } else {
      const answered = ended("completed", "reply", "answered");
      const call = () =>
        delegations.finish(one.lease, { ...answered, sent: { sendId, eventId: event } }, w.now);
      await w.perform(fault, call, () => w.model.finish(claim, answered, w.now, send));
    }
  },
  // The homeserver gives every event to the bridge, those of its ghosts too.
  echo: async (w, { which }) => {
    const one = recent([...w.sent.values()], which);
    if (one === undefined) return;
    const { event, transaction, room: where, ghost: who, send } = one;
    const posted = [{ event, transaction, room: where, ghost: who, position: 0 }];
    await w.perform(
      undefined,
      async () => (await admitEvent(w, event, where, { posted })).replayed,
      () => {
        const isReplayed = w.model.handled.has(event);
        w.model.handled.add(event);
        if (!isReplayed) w.model.sent(send);
        return isReplayed;
      },
    );
  },
  finish: async (w, { which, outcome, fault }) => {
    const one = pick(w, which);
    if (one === undefined) return;
    const call = () => w.ledger.delegations.finish(one.lease, OUTCOMES[outcome], w.now);
    await w.perform(fault, call, () => w.model.finish(claimOf(one), OUTCOMES[outcome], w.now));
  },
  end_wait: async (w, { which, fault }) => {
    const one = pick(w, which, "awaiting_input");
    if (one === undefined) return;
    await w.perform(
      fault,
      () => w.ledger.delegations.endWait(one.lease, w.now),
      () => w.model.endWait(claimOf(one)),
    );
  },
  defer: async (w, { which, ms, isUndelivered, fault }) => {
    const one = pick(w, which);
    if (one === undefined) return;
    const undelivered = isUndelivered && w.isUndelivered(one);
    const call = () => w.ledger.delegations.defer(one.lease, w.now + ms, { undelivered });
    await w.perform(fault, call, () => w.model.release(claimOf(one), w.now + ms, 1, undelivered));
  },
  release: async (w, { which }) => {
    const one = pick(w, which);
    if (one === undefined) return;
    await w.perform(
      undefined,
      () => w.ledger.delegations.release([one.lease], w.now),
      () => void w.model.release(claimOf(one), w.now, 0, false),
    );
  },
  renew: async (w, { which }) => {
    const one = pick(w, which);
    if (one === undefined) return;
    const { delegationId: id } = one.lease;
    const call = async () => {
      const { held, canceled } = await w.ledger.delegations.renew([one.lease], w.now + LEASE_MS);
      return { held: held.has(id), canceled: canceled.has(id) };
    };
    await w.perform(undefined, call, () => w.model.renew(claimOf(one), w.now + LEASE_MS));
  },
};
