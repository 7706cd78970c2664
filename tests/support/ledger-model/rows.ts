// What every part of the reference model stands on: its rooms and rows, what is full, what was audited and noticed.
// Invariants: pure code, no input or output, and time is a parameter; a room's line holds what waits for its turn.
import type { NoticeKind, NoticeReason, TerminalReason } from "../../../src/bridge/ledger/states.ts";
import {
  type Arrival,
  agentOf,
  type Delegation,
  type Envelope,
  isOpen,
  type Limits,
  type Notice,
  type Room,
  type Status,
  serverOf,
} from "./entities.ts";

const NOTICE_INTERVAL_MS = 600_000;
const STATUS_AFTER_MS = 5_000;
/** Notices of these kinds have one cause each; the others are not repeated in a room within the interval. */
const UNBOUNDED: readonly NoticeKind[] = [
  "answer_refused",
  "delegation_canceled",
  "delegation_failed",
  "delegation_stopped",
];

export class ModelRows {
  readonly rooms = new Map<string, Room>();
  readonly delegations = new Map<string, Delegation>();
  readonly envelopes = new Map<string, Envelope>();
  readonly notices: Notice[] = [];
  readonly statuses = new Map<string, Status>();
  readonly handled = new Set<string>();
  /** Event, ghost, outcome and reason of each record; of intake envelopes without a ghost. */
  readonly audit: string[] = [];
  readonly gateMs: number;
  protected readonly limits: Limits;
  protected readonly speaker: string;

  /** @param speaker the ghost that is joined in every room */
  constructor(gateMs: number, limits: Limits, speaker: string) {
    this.gateMs = gateMs;
    this.limits = limits;
    this.speaker = speaker;
  }

  room(name: string): Room {
    const room = this.rooms.get(name) ?? { line: [], turnAt: 0, keysMissing: false };
    this.rooms.set(name, room);
    return room;
  }

  /** Changes a room's line. When that changes the head, the new head's turn begins at `at`. */
  protected line(name: string, at: number, change: (room: Room) => void): void {
    const room = this.room(name);
    const head = room.line[0];
    change(room);
    if (room.line[0] !== head) room.turnAt = at;
  }

  protected leave(one: Delegation | Envelope, at: number): void {
    this.line(one.room, at, (room) => {
      room.line = room.line.filter((other) => other !== one);
    });
  }

  protected isHead = (one: Delegation): boolean => this.room(one.room).line[0] === one;

  openIn(where: (one: Delegation) => boolean): number {
    return [...this.delegations.values()].filter((one) => isOpen(one) && where(one)).length;
  }

  protected awaiting(where: (one: Envelope) => boolean): number {
    return [...this.envelopes.values()].filter((one) => isOpen(one) && where(one)).length;
  }

  protected full({ room, sender }: Arrival, ghost: string): TerminalReason | null {
    const { room: perRoom, agent, server, global } = this.limits;
    if (this.openIn((one) => one.room === room) >= perRoom) return "room_capacity_exceeded";
    if (this.openIn((one) => one.agent === agentOf(ghost)) >= agent) return "agent_capacity_exceeded";
    if (this.openIn((one) => serverOf(one.sender) === serverOf(sender)) >= server)
      return "server_capacity_exceeded";
    return this.openIn(() => true) >= global ? "global_capacity_exceeded" : null;
  }

  protected audited({
    event,
    ghost,
    state,
    reason,
  }: Pick<Delegation, "event" | "ghost" | "state" | "reason">): void {
    this.audit.push(`${event} ${ghost} ${state} ${reason}`);
  }

  /** @returns whether there is a new notice: a bounded one is not repeated within its interval, another never */
  protected notify(
    kind: NoticeKind,
    room: string,
    ghost: string,
    source: string | null,
    reason: NoticeReason | null,
    now: number,
  ): boolean {
    const isRepeated = this.notices.some(
      (one) =>
        one.kind === kind &&
        one.room === room &&
        (one.ghost === ghost || kind === "keys_missing") &&
        (UNBOUNDED.includes(kind) ? one.source === source : one.createdAt > now - NOTICE_INTERVAL_MS),
    );
    if (isRepeated) return false;
    const state = { state: "pending", dueAt: now, isHeld: false, fence: 0, attempts: 0 } as const;
    this.notices.push({ kind, room, ghost, source, reason, createdAt: now, ...state });
    return true;
  }

  settleNotice(notice: Notice, fence: number, how: "sent" | "dropped" | number): void {
    if (notice.state !== "pending" || notice.fence !== fence) return;
    if (typeof how === "number")
      Object.assign(notice, { dueAt: how, isHeld: false, attempts: notice.attempts + 1 });
    else Object.assign(notice, { state: how, dueAt: null });
  }

  /** Delegations that take long get a status message. */
  findStatuses(now: number): void {
    for (const { key, state, admittedAt } of this.delegations.values()) {
      const isLong =
        ["queued", "dispatching", "following"].includes(state) && admittedAt <= now - STATUS_AFTER_MS;
      if (!isLong || this.statuses.has(key)) continue;
      this.statuses.set(key, { key, event: null, dueAt: now, isHeld: false, fence: 0 });
    }
  }

  /** A status message was shown: also whoever lost it says so, and then it is worked on again. */
  shown(key: string, fence: number, event: string, dueAt: number): void {
    const status = this.statuses.get(key);
    if (status === undefined) {
      if (!this.delegations.has(key)) return;
      this.statuses.set(key, { key, event, dueAt, isHeld: false, fence: fence + 1 });
    } else if (status.fence === fence) {
      Object.assign(status, { event, dueAt, isHeld: false });
    } else {
      const late = { event: status.event ?? event, fence: status.fence + 1 };
      Object.assign(status, { ...late, dueAt, isHeld: false });
    }
  }

  /**
   * Deletes delegations and intake envelopes that ended before a time, and notices that were settled.
   * @param left the delegations that the ledger left, of which it may keep those that ended while they waited
   */
  prune(before: number, left: ReadonlySet<string>): void {
    const isOld = (one: { readonly endedAt: number | null }) => one.endedAt !== null && one.endedAt < before;
    for (const [key, one] of this.delegations) {
      if (!isOld(one) || (one.endedInLine && left.has(key))) continue;
      this.delegations.delete(key);
      this.statuses.delete(key);
    }
    for (const [event, one] of this.envelopes) if (isOld(one)) this.envelopes.delete(event);
    const kept = this.notices.filter((one) => one.state === "pending" || one.createdAt >= before);
    this.notices.splice(0, this.notices.length, ...kept);
  }
}
