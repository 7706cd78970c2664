// What the reference model of the ledger consists of: its rooms and rows, what is full, what was audited and noticed, and
// who may work on what. The field names are those that world.ts reads of the real tables.
// Invariants: pure code, no input or output, and time is a parameter; nothing here is imported from the ledger's SQL, only
// its closed sets; a room's line holds what waits for its turn; its head is claimed, and what rooms are past when it is due;
// a claim that is not the present one is lost.
import type {
  CancelReason,
  DelegationState,
  IntakeEnvelopeState,
  NoticeKind,
  NoticeReason,
  SendPurpose,
  TerminalReason,
} from "../../../../../src/bridge/ledger/states.ts";

/** One event that is sent for a delegation. */
export interface Send {
  readonly purpose: SendPurpose;
  readonly ordinal: number;
  state: "pending" | "sent" | "abandoned";
  attempted: boolean;
  hasContent: boolean;
}

export interface Delegation {
  /** Event and ghost. */
  readonly key: string;
  readonly event: string;
  readonly ghost: string;
  readonly room: string;
  readonly sender: string;
  readonly agent: string;
  readonly admittedAt: number;
  state: DelegationState;
  reason: TerminalReason | null;
  endedAt: number | null;
  holder: string | null;
  leaseUntil: number | null;
  fence: number;
  /** When it may be claimed again, once its room is past it; null while its room waits for it. */
  dueAt: number | null;
  triedAt: number | null;
  attempts: number;
  /** What is to be handed to the agent; null once the agent has it, or the delegation has ended. */
  hasPrompt: boolean;
  answerEvent: string | null;
  hasOptions: boolean;
  asked: number;
  /** Its question may be answered. */
  isAwaited: boolean;
  task: string | null;
  attempted: boolean;
  unsettled: boolean;
  cancel: CancelReason | null;
  /** It ended while it waited for its turn: its row stays until a claim has stepped over it. */
  endedInLine: boolean;
  sends: Send[];
}

export interface Envelope {
  readonly event: string;
  readonly room: string;
  readonly sender: string;
  readonly admittedAt: number;
  readonly deadline: number;
  state: IntakeEnvelopeState;
  reason: string | null;
  endedAt: number | null;
  isHeld: boolean;
  dueAt: number | null;
  wokenAt: number | null;
  fence: number;
  attempts: number;
  jobs: number;
}

export interface Notice {
  readonly kind: NoticeKind;
  readonly room: string;
  readonly ghost: string;
  readonly source: string | null;
  readonly reason: NoticeReason | null;
  readonly createdAt: number;
  state: "pending" | "sent" | "dropped";
  dueAt: number | null;
  isHeld: boolean;
  fence: number;
  attempts: number;
}

export interface Status {
  readonly key: string;
  event: string | null;
  dueAt: number;
  isHeld: boolean;
  fence: number;
}

export interface Room {
  /** What waits for its turn, in the room's order: the first is the head. */
  line: (Delegation | Envelope)[];
  /** When the head may be claimed, if it is a delegation. */
  turnAt: number;
  keysMissing: boolean;
}

/** An event of a transaction: it asks ghosts, or it cannot be decrypted yet. */
export interface Arrival {
  readonly event: string;
  readonly room: string;
  readonly sender: string;
  /** Undefined: an encrypted event whose key is missing. */
  readonly ghosts: readonly string[] | undefined;
}

export interface Limits {
  readonly roomQueue: number;
  readonly globalQueue: number;
  readonly serverQueue: number;
  readonly agentQueue: number;
  readonly agentReserve: number;
  readonly roomEnvelopes: number;
  readonly senderEnvelopes: number;
  readonly serverEnvelopes: number;
  readonly globalEnvelopes: number;
}

/** Who holds what: the fence tells the holder's own claim from the next one. */
export interface Claim {
  readonly key: string;
  readonly holder: string;
  readonly fence: number;
}

export const isDelegation = (one: Delegation | Envelope): one is Delegation => "ghost" in one;
export const keyOf = (event: string, ghost: string): string => `${event} ${ghost}`;
export const agentOf = (ghost: string): string => ghost.replace(/^@agent_(.*):.*$/, "$1");
export const serverOf = (user: string): string => user.slice(user.indexOf(":") + 1);
export const isOpen = (one: { readonly endedAt: number | null }): boolean => one.endedAt === null;

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
  /** Delegations that were found to take long: each is found once. */
  readonly #foundLong = new Set<string>();
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

  isHead = (one: Delegation): boolean => this.room(one.room).line[0] === one;

  openIn(where: (one: Delegation) => boolean): number {
    return [...this.delegations.values()].filter((one) => isOpen(one) && where(one)).length;
  }

  protected awaiting(where: (one: Envelope) => boolean): number {
    return [...this.envelopes.values()].filter((one) => isOpen(one) && where(one)).length;
  }

  protected fullOfEnvelopes(room: string, sender: string) {
    const { roomEnvelopes, senderEnvelopes, serverEnvelopes, globalEnvelopes } = this.limits;
    if (this.awaiting((one) => one.sender === sender) >= senderEnvelopes) return "sender_envelopes_exceeded";
    if (this.awaiting((one) => one.room === room) >= roomEnvelopes) return "room_envelopes_exceeded";
    const isOfServer = (one: Envelope) => serverOf(one.sender) === serverOf(sender);
    if (this.awaiting(isOfServer) >= serverEnvelopes) return "server_envelopes_exceeded";
    const most = this.awaiting(isOfServer) < senderEnvelopes ? 2 * globalEnvelopes : globalEnvelopes;
    return this.awaiting(() => true) >= most ? "global_envelopes_exceeded" : null;
  }

  protected full({ room, sender }: Arrival, ghost: string): TerminalReason | null {
    const { roomQueue, agentQueue, agentReserve, serverQueue, globalQueue } = this.limits;
    const isOfAgent = (one: Delegation) => one.agent === agentOf(ghost);
    const isOfServer = (one: Delegation) => serverOf(one.sender) === serverOf(sender);
    const ofAgent = this.openIn(isOfAgent);
    if (this.openIn((one) => one.room === room) >= roomQueue) return "room_capacity_exceeded";
    if (ofAgent >= agentQueue) return "agent_capacity_exceeded";
    const ofPair = this.openIn((one) => isOfAgent(one) && isOfServer(one));
    if (this.openIn(isOfServer) >= (ofPair < agentReserve ? 2 * serverQueue : serverQueue))
      return "server_capacity_exceeded";
    const most = ofAgent < agentReserve ? 2 * globalQueue : globalQueue;
    return this.openIn(() => true) >= most ? "global_capacity_exceeded" : null;
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

  /** Delegations that take long get a status message; one that was ended does not come again. */
  findStatuses(now: number): void {
    for (const { key, state, admittedAt } of this.delegations.values()) {
      const isLong =
        ["queued", "dispatching", "following"].includes(state) && admittedAt <= now - STATUS_AFTER_MS;
      if (!isLong || this.#foundLong.has(key)) continue;
      this.#foundLong.add(key);
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
      this.#foundLong.delete(key);
    }
    for (const [event, one] of this.envelopes) if (isOld(one)) this.envelopes.delete(event);
    const kept = this.notices.filter((one) => one.state === "pending" || one.createdAt >= before);
    this.notices.splice(0, this.notices.length, ...kept);
  }
}

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
