// The reference model of the ledger: what the tables must say after each call, written without tables. A room is a list
// of what waits for its turn; capacity is counted by looking; a notice is suppressed by looking for an earlier one.
// Invariants: pure code, no input or output, and time is a parameter; a method changes nothing and returns "lost" where
// the caller's fence is not the present one, or the state does not allow the transition.
import type {
  CancelReason,
  ExpiryReason,
  NoticeKind,
  SendPurpose,
  TerminalReason,
  TerminalState,
} from "../../../../../src/bridge/ledger/states.ts";
import {
  type Arrival,
  agentOf,
  type Claim,
  type Delegation,
  type Envelope,
  isOpen,
  keyOf,
  ModelLeases,
  type Send,
} from "./rows.ts";

/** What is said to the person whose question was canceled. */
const CANCEL_NOTICES: Readonly<Record<CancelReason, NoticeKind | undefined>> = {
  source_redacted: undefined,
  sender_canceled: "delegation_canceled",
  operator_canceled: "delegation_stopped",
};

export class LedgerModel extends ModelLeases {
  // Intake

  /** New delegations of an event; those that are refused get no place. */
  #ask(arrival: Arrival, ghosts: readonly string[], now: number): Delegation[] {
    const { event, room, sender } = arrival;
    return ghosts.flatMap((ghost) => {
      const reason = this.full(arrival, ghost);
      const one: Delegation = {
        ...{ key: keyOf(event, ghost), event, ghost, room, sender, agent: agentOf(ghost), admittedAt: now },
        ...{ state: reason === null ? "queued" : "denied", reason, endedAt: reason === null ? null : now },
        ...{ holder: null, leaseUntil: null, fence: 0, dueAt: null, triedAt: null, attempts: 0 },
        ...{ hasPrompt: reason === null, answerEvent: null, hasOptions: false, asked: 0, task: null },
        ...{
          attempted: false,
          unsettled: false,
          isAwaited: false,
          cancel: null,
          endedInLine: false,
          sends: [],
        },
      };
      this.delegations.set(one.key, one);
      if (reason === null) return [one];
      this.audited(one);
      this.notify("capacity_exceeded", room, ghost, event, reason, now);
      return [];
    });
  }

  /** A transaction of the homeserver. @returns what it admitted */
  admit(arrivals: readonly Arrival[], now: number, waitMs: number): { admitted: number; replayed: boolean } {
    const fresh = arrivals.filter(({ event }) => !this.handled.has(event));
    let admitted = 0;
    // Of one transaction, the notices of intake envelopes come last.
    const notices: (() => void)[] = [];
    for (const arrival of fresh) {
      this.handled.add(arrival.event);
      if (arrival.ghosts === undefined) {
        notices.push(this.#seal(arrival, now, waitMs));
        continue;
      }
      const asked = this.#ask(arrival, arrival.ghosts, now);
      admitted += asked.length;
      this.line(arrival.room, now, ({ line }) => line.push(...asked));
    }
    for (const notify of notices) notify();
    return { admitted, replayed: fresh.length === 0 };
  }

  /** @returns what tells the room of a refusal */
  #seal({ event, room, sender }: Arrival, now: number, waitMs: number): () => void {
    const reason = this.fullOfEnvelopes(room, sender);
    const one: Envelope = {
      ...{ event, room, sender, admittedAt: now, deadline: now + waitMs, reason, isHeld: false },
      ...{ state: reason === null ? "awaiting_key" : "denied", endedAt: reason === null ? null : now },
      ...{ dueAt: reason === null ? now : null, wokenAt: null, fence: 0, attempts: 0, jobs: 0 },
    };
    this.envelopes.set(event, one);
    this.line(room, now, ({ line }) => line.push(...(reason === null ? [one] : [])));
    return () => {
      if (reason !== null) this.notify("capacity_exceeded", room, this.speaker, event, reason, now);
    };
  }

  /** A cancellation: what waits ends; what a worker has is marked, and becomes due. */
  cancel(keys: readonly string[], reason: CancelReason, now: number): { ended: string[]; marked: string[] } {
    const found = keys.flatMap((key) => this.delegations.get(key) ?? []).filter(isOpen);
    const [ended, marked] = [[] as string[], [] as string[]];
    for (const one of found) {
      const room = this.room(one.room);
      const sooner = Math.min(room.turnAt, now);
      if (one.state === "queued") {
        one.cancel = reason;
        one.endedInLine = one.dueAt === null;
        this.#end(one, "canceled", reason, now, sooner);
        const kind = CANCEL_NOTICES[reason];
        if (kind !== undefined) this.notify(kind, one.room, one.ghost, one.event, reason, now);
        ended.push(one.key);
        continue;
      }
      one.cancel ??= reason;
      marked.push(one.key);
      if (one.holder !== null) continue;
      if (one.dueAt !== null) one.dueAt = now;
      if (this.isHead(one)) room.turnAt = sooner;
    }
    return { ended, marked };
  }

  /** A redaction of a question, of an answer that the agent does not have yet, or of an encrypted event. */
  redact(by: string, event: string, room: string, now: number): string[] {
    this.handled.add(by);
    const about = [...this.delegations.values()].filter(
      (one) => one.room === room && (one.event === event || (one.answerEvent === event && one.hasPrompt)),
    );
    const keys = about.map(({ key }) => key);
    const { marked } = this.cancel(keys, "source_redacted", now);
    const envelope = this.envelopes.get(event);
    if (envelope !== undefined && isOpen(envelope)) this.#expire(envelope, "source_redacted", now);
    return marked;
  }

  /** The person who asked cancels. @returns what is marked for its worker */
  cancelBySender(key: string, event: string, now: number): string[] {
    if (this.handled.has(event)) return [];
    this.handled.add(event);
    return this.cancel([key], "sender_canceled", now).marked;
  }

  cancelByOperator(key: string, now: number): "ended" | "requested" | undefined {
    const { ended, marked } = this.cancel([key], "operator_canceled", now);
    return ended.length > 0 ? "ended" : marked.length > 0 ? "requested" : undefined;
  }

  /** An operator has a delegation tried at once. */
  retry(key: string, now: number): boolean {
    const one = this.delegations.get(key);
    if (one === undefined || !isOpen(one) || (one.leaseUntil ?? now) > now) return false;
    one.attempts = 0;
    if (one.state === "queued" || one.state === "dispatching") one.triedAt = null;
    if (one.dueAt !== null) one.dueAt = now;
    if (this.isHead(one)) this.room(one.room).turnAt = now;
    return true;
  }

  /** The person who asked answers the agent's question. @returns how many answers counted */
  answer(key: string, event: string, now: number): number {
    if (this.handled.has(event)) return 0;
    this.handled.add(event);
    const one = this.delegations.get(key) as Delegation;
    const isOpenQuestion = one.state === "awaiting_input" && !one.hasPrompt && one.isAwaited;
    if (!isOpenQuestion || one.cancel !== null) {
      this.notify("answer_refused", one.room, one.ghost, one.event, "already_ended", now);
      return 0;
    }
    Object.assign(one, {
      hasPrompt: true,
      answerEvent: event,
      hasOptions: false,
      triedAt: null,
      attempts: 0,
    });
    if (one.holder === null) one.dueAt = now;
    return 1;
  }

  // Transitions

  begin(claim: Claim): "begun" | "canceled" | "lost" {
    const one = this.held(claim);
    if (one?.state !== "dispatching") return "lost";
    if (one.cancel !== null) return "canceled";
    one.attempted = true;
    one.unsettled = true;
    return "begun";
  }

  /** The agent has the prompt: its room goes on, and the content is cleared. */
  #taken(one: Delegation, now: number): void {
    one.hasPrompt = false;
    one.attempts = 0;
    if (one.dueAt === null) this.leave(one, now);
    one.dueAt = one.leaseUntil;
  }

  accept(claim: Claim, task: string, now: number): "lost" | undefined {
    const one = this.held(claim);
    if (one?.state !== "dispatching") return "lost";
    Object.assign(one, { state: "following", task });
    this.#taken(one, now);
    return undefined;
  }

  ask(claim: Claim, asked: number, parts: number, task: string, now: number): Send[] | "canceled" | "lost" {
    const one = this.held(claim);
    if (one === undefined || !["dispatching", "following"].includes(one.state) || one.asked !== asked)
      return "lost";
    if (one.cancel !== null) return "canceled";
    Object.assign(one, {
      state: "awaiting_input",
      task,
      unsettled: false,
      hasOptions: true,
      isAwaited: true,
    });
    this.#taken(one, now);
    one.asked += parts;
    return this.#send(one, "question", asked, parts);
  }

  reply(claim: Claim, parts: number, now: number): Send[] | "canceled" | "lost" {
    const one = this.held(claim);
    if (one === undefined || !["dispatching", "following", "awaiting_input"].includes(one.state))
      return "lost";
    if (one.cancel !== null) return "canceled";
    Object.assign(one, { state: "reply_pending", hasOptions: false });
    this.#taken(one, now);
    return this.#send(one, "reply", 0, parts);
  }

  #send(one: Delegation, purpose: SendPurpose, from: number, count: number): Send[] {
    this.#giveUpSends(one);
    const sends = Array.from({ length: count }, (_, index): Send => {
      return { purpose, ordinal: from + index, state: "pending", attempted: false, hasContent: true };
    });
    one.sends.push(...sends);
    return sends;
  }

  /** An event of a question was sent: from now on its answer is waited for. */
  asked(claim: Claim, send: Send): "lost" | undefined {
    this.sent(send);
    const one = this.held(claim);
    if (one?.state !== "awaiting_input") return "lost";
    one.isAwaited = true;
    return undefined;
  }

  /** Nobody may answer any more, unless somebody has, or what they sent waits for its key. */
  endWait(claim: Claim): boolean | "lost" {
    const one = this.held(claim);
    if (one?.state !== "awaiting_input") return "lost";
    if (one.hasPrompt || this.awaiting(({ room, sender }) => room === one.room && sender === one.sender) > 0)
      return false;
    one.isAwaited = false;
    return true;
  }

  pending(claim: Claim, purpose: SendPurpose): Send[] | "lost" {
    const one = this.held(claim);
    return one?.sends.filter((send) => send.purpose === purpose && send.state === "pending") ?? "lost";
  }

  /** The homeserver has the event, whoever says so. */
  sent(send: Send): void {
    if (send.state === "pending") Object.assign(send, { state: "sent", hasContent: false });
  }

  finish(
    claim: Claim,
    outcome: { state: TerminalState; reason: TerminalReason; notice?: NoticeKind },
    now: number,
    last?: Send,
  ): TerminalReason | "lost" {
    const one = this.held(claim);
    if (one === undefined) return "lost";
    if (last !== undefined) this.sent(last);
    const reason = outcome.state === "canceled" ? (one.cancel ?? outcome.reason) : outcome.reason;
    this.#end(one, outcome.state, reason, now, now);
    const { room, ghost, event } = one;
    const kind =
      outcome.state === "canceled" ? CANCEL_NOTICES[one.cancel ?? "source_redacted"] : outcome.notice;
    if (kind !== undefined) this.notify(kind, room, ghost, event, reason, now);
    return reason;
  }

  #end(one: Delegation, state: TerminalState, reason: TerminalReason, now: number, turnAt: number): void {
    this.leave(one, turnAt);
    Object.assign(one, { state, reason, endedAt: now, holder: null, leaseUntil: null, dueAt: null });
    Object.assign(one, { hasPrompt: false, hasOptions: false, task: null });
    this.#giveUpSends(one);
    this.audited(one);
  }

  #giveUpSends({ sends }: Delegation): void {
    for (const send of sends) {
      if (send.state === "pending") Object.assign(send, { state: "abandoned", hasContent: false });
    }
  }

  // Intake envelopes

  dueEnvelopes(now: number): Set<string> {
    const due = [...this.envelopes.values()].filter((one) => one.dueAt !== null && one.dueAt <= now);
    return new Set(due.map(({ event }) => event));
  }

  hasPlace = (one: Envelope): boolean => this.room(one.room).line.includes(one);

  claimedEnvelope(event: string, until: number): Envelope {
    const one = this.envelopes.get(event) as Envelope;
    Object.assign(one, { isHeld: true, dueAt: until, wokenAt: null, fence: one.fence + 1 });
    return one;
  }

  /** A place that was held for too long is given up. */
  giveUpPlace(one: Envelope, now: number): boolean {
    if (!this.hasPlace(one) || now < one.admittedAt + this.gateMs) return false;
    this.leave(one, now);
    return true;
  }

  #heldEnvelope({ key, fence }: Claim): Envelope | undefined {
    const one = this.envelopes.get(key);
    return one !== undefined && isOpen(one) && one.fence === fence ? one : undefined;
  }

  /** The key is here: what the event asks takes its place in the room, or goes last when the room is past it. */
  derive(claim: Claim, ghosts: readonly string[], now: number): { admitted: number } | "lost" {
    const one = this.#heldEnvelope(claim);
    if (one === undefined) return "lost";
    const asked = this.#ask({ ...one, ghosts }, ghosts, now);
    this.line(one.room, now, ({ line }) => {
      const place = line.indexOf(one);
      line.splice(place < 0 ? line.length : place, place < 0 ? 0 : 1, ...asked);
    });
    this.#close(one, "derived", "derived", now);
    one.jobs = asked.length;
    this.room(one.room).keysMissing = false;
    return { admitted: asked.length };
  }

  #close(one: Envelope, state: Envelope["state"], reason: string, now: number): void {
    Object.assign(one, { state, reason, endedAt: now, dueAt: null, isHeld: false });
  }

  expire(claim: Claim, reason: ExpiryReason, now: number): "lost" | undefined {
    const one = this.#heldEnvelope(claim);
    if (one === undefined) return "lost";
    this.#expire(one, reason, now);
    return undefined;
  }

  #expire(one: Envelope, reason: ExpiryReason, now: number): void {
    this.leave(one, now);
    this.#close(one, "expired", reason, now);
    this.audit.push(`${one.event} - expired ${reason}`);
    const room = this.room(one.room);
    if (reason !== "key_wait_elapsed" || room.keysMissing) return;
    room.keysMissing = this.notify("keys_missing", one.room, this.speaker, null, null, now);
  }

  putOff({ key, fence }: Claim, wakeAt: number): "lost" | undefined {
    const one = this.envelopes.get(key);
    if (one === undefined || one.fence !== fence || !one.isHeld) return "lost";
    const ends = [wakeAt, one.deadline, one.wokenAt ?? wakeAt];
    if (this.hasPlace(one)) ends.push(one.admittedAt + this.gateMs);
    Object.assign(one, { dueAt: Math.min(...ends), isHeld: false, attempts: one.attempts + 1 });
    return undefined;
  }

  wake(room: string, now: number): number {
    const waiting = [...this.envelopes.values()].filter((one) => one.room === room && isOpen(one));
    for (const one of waiting) {
      if (!one.isHeld) one.dueAt = Math.min(one.dueAt ?? now, now);
      one.wokenAt = now;
    }
    return waiting.length;
  }
}
