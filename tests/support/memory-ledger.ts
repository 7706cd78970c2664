// A ledger of delegations in memory: a model of the rules that the real one keeps in SQL.
// Invariants: a claim raises the fence; a write without the present fence is refused with `lease_lost`; a
// room's delegations are claimed in order of admission, the next one when the head is accepted or has
// ended; a terminal row holds no content.

import type { Outcome } from "../../src/bridge/ledger/delegations.ts";
import type { ClaimedDelegation, Lease, RetryNote } from "../../src/bridge/ledger/leases.ts";
import type { DelegationLedger } from "../../src/bridge/ledger/ledger.ts";
import type { PendingSend } from "../../src/bridge/ledger/replies.ts";
import type { DelegationState, OpenState, TerminalReason } from "../../src/bridge/ledger/states.ts";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import type {
  AgentId,
  EventId,
  GhostMxid,
  RoomId,
  TransactionId,
  UserId,
} from "../../src/domain/identifiers.ts";

export interface MemoryRow {
  readonly id: string;
  readonly roomId: RoomId;
  readonly sourceEventId: EventId;
  readonly sender: UserId;
  readonly ghost: GhostMxid;
  readonly agentId: AgentId;
  readonly targetFingerprint: string;
  readonly a2aMessageId: string;
  readonly admittedAt: number;
  prompt: string | undefined;
  state: DelegationState;
  holder: string | undefined;
  fence: bigint;
  /** When it may be claimed next. */
  dueAt: number;
  attempts: number;
  cancelRequested: boolean;
  a2aAttempted: boolean;
  a2aUnsettled: boolean;
  retryReason: TerminalReason | undefined;
  a2aTaskId: string | undefined;
  a2aContextId: string | undefined;
  acceptedAt: number | undefined;
  agentVersion: string | undefined;
  outcome: Outcome | undefined;
  sends: { send: PendingSend; eventId: EventId | undefined }[];
}

const isTerminal = (row: MemoryRow) => row.outcome !== undefined;
const isHeadState = (row: MemoryRow) => row.state === "queued" || row.state === "dispatching";

export class MemoryLedger implements DelegationLedger, DelegationLedger {
  readonly rows: MemoryRow[] = [];
  /** Tokens left in each bucket; a bucket starts full. */
  readonly tokens = new Map<string, number>();
  tokensSpent = 0;
  /** Every call, in order, as `method:delegation`. */
  readonly calls: string[] = [];
  /** Runs before each call; may throw, as a database does that is away. */
  before: (method: string) => void | Promise<void> = () => {};

  admit(
    row: Pick<
      MemoryRow,
      "roomId" | "sourceEventId" | "ghost" | "agentId" | "targetFingerprint" | "admittedAt"
    > & { sender?: UserId; prompt?: string },
  ): MemoryRow {
    const id = String(this.rows.length + 1);
    const full: MemoryRow = {
      sender: "@alice:a.test" as UserId,
      ...row,
      id,
      a2aMessageId: `message-${id}`,
      prompt: row.prompt ?? `prompt ${id}`,
      state: "queued",
      holder: undefined,
      fence: 0n,
      dueAt: 0,
      attempts: 0,
      cancelRequested: false,
      a2aAttempted: false,
      a2aUnsettled: false,
      retryReason: undefined,
      a2aTaskId: undefined,
      a2aContextId: undefined,
      acceptedAt: undefined,
      agentVersion: undefined,
      outcome: undefined,
      sends: [],
    };
    this.rows.push(full);
    return full;
  }

  row(id: string): MemoryRow {
    const row = this.rows.find((each) => each.id === id);
    if (row === undefined) throw new Error(`no delegation ${id}`);
    return row;
  }

  async claim(request: {
    holder: string;
    limit: number;
    now: number;
    leaseUntil: number;
  }): Promise<ClaimedDelegation[]> {
    await this.#enter("claim", undefined);
    const claimed: ClaimedDelegation[] = [];
    const heads = new Set<RoomId>();
    for (const row of this.rows) {
      if (isTerminal(row)) continue;
      if (isHeadState(row)) {
        if (heads.has(row.roomId)) continue;
        heads.add(row.roomId);
      }
      if (row.dueAt > request.now || claimed.length >= request.limit) continue;
      const resumedFrom = row.state as Exclude<OpenState, "awaiting_input">;
      row.holder = request.holder;
      row.fence += 1n;
      row.dueAt = request.leaseUntil;
      if (row.state === "queued") row.state = "dispatching";
      claimed.push({
        lease: { delegationId: row.id, holder: request.holder, fence: String(row.fence) },
        resumedFrom,
        roomId: row.roomId,
        sourceEventId: row.sourceEventId,
        sender: row.sender,
        ghost: row.ghost,
        agentId: row.agentId,
        targetFingerprint: row.targetFingerprint,
        threadRoot: undefined,
        prompt: row.prompt,
        a2aMessageId: row.a2aMessageId,
        a2aTaskId: row.a2aTaskId,
        a2aContextId: row.a2aContextId,
        a2aAttempted: row.a2aAttempted,
        a2aUnsettled: row.a2aUnsettled,
        retryReason: row.retryReason,
        attempts: row.attempts,
        admittedAt: row.admittedAt,
        acceptedAt: row.acceptedAt,
        cancelRequested: row.cancelRequested,
      });
    }
    return claimed;
  }

  async renew(leases: readonly Lease[], leaseUntil: number) {
    await this.#enter("renew", undefined);
    const held = leases.map((lease) => this.#find(lease)).filter((row) => row !== undefined);
    for (const row of held) row.dueAt = leaseUntil;
    const ids = (rows: MemoryRow[]) => new Set(rows.map(({ id }) => id));
    return { held: ids(held), canceled: ids(held.filter(({ cancelRequested }) => cancelRequested)) };
  }

  async beginDispatch(
    lease: Lease,
    bucket: { key: string; burst: number },
  ): Promise<"begun" | "rate_limited" | "canceled"> {
    const row = await this.#held("beginDispatch", lease, ["dispatching"]);
    if (row.cancelRequested) return "canceled";
    if (!row.a2aAttempted) {
      const left = this.tokens.get(bucket.key) ?? bucket.burst;
      if (left < 1) return "rate_limited";
      this.tokens.set(bucket.key, left - 1);
      this.tokensSpent += 1;
    }
    row.a2aAttempted = true;
    row.a2aUnsettled = true;
    return "begun";
  }

  async recordAccepted(
    lease: Lease,
    accepted: { taskId: string; contextId: string | undefined; agentVersion: string | undefined },
    now: number,
  ): Promise<void> {
    const row = await this.#held("recordAccepted", lease, ["dispatching"]);
    row.state = "following";
    row.prompt = undefined;
    row.acceptedAt = now;
    row.a2aTaskId = accepted.taskId;
    row.a2aContextId = accepted.contextId;
    row.agentVersion = accepted.agentVersion;
  }

  async recordReply(
    lease: Lease,
    reply: {
      parts: readonly { eventType: string; content: Readonly<Record<string, unknown>> }[];
      agentVersion: string | undefined;
    },
    now: number,
  ): Promise<PendingSend[] | "canceled"> {
    const row = await this.#held("recordReply", lease, ["dispatching", "following"]);
    if (row.cancelRequested) return "canceled";
    row.state = "reply_pending";
    row.prompt = undefined;
    row.acceptedAt ??= now;
    row.agentVersion = reply.agentVersion ?? row.agentVersion;
    row.sends = reply.parts.map((part, ordinal) => ({
      eventId: undefined,
      send: {
        sendId: `${row.id}.${ordinal}`,
        purpose: "reply",
        ordinal,
        roomId: row.roomId,
        ghost: row.ghost,
        sourceEventId: row.sourceEventId,
        transactionId: `reply.${row.id}.${ordinal}` as TransactionId,
        eventType: part.eventType,
        content: part.content,
        firstAttemptedAt: undefined,
      },
    }));
    return row.sends.map(({ send }) => send);
  }

  async pendingReply(lease: Lease): Promise<PendingSend[]> {
    const row = await this.#held("pendingReply", lease, ["reply_pending"]);
    return row.sends.filter(({ eventId }) => eventId === undefined).map(({ send }) => send);
  }

  async defer(lease: Lease, wakeAt: number, note?: RetryNote): Promise<void> {
    const row = await this.#held("defer", lease);
    if (note?.undelivered === true) row.a2aUnsettled = false;
    row.retryReason = note?.reason ?? row.retryReason;
    row.attempts += 1;
    this.#releaseLeases(row, wakeAt);
  }

  async finish(lease: Lease, outcome: Outcome): Promise<void> {
    const row = await this.#held("finish", lease);
    const last = row.sends.find(({ send }) => send.sendId === outcome.sent?.sendId);
    if (last !== undefined) last.eventId = outcome.sent?.eventId;
    row.outcome = outcome;
    row.state = outcome.state;
    row.prompt = undefined;
    row.holder = undefined;
    row.sends = row.sends.map((each) => ({ ...each, send: { ...each.send, content: {} } }));
  }

  async release(leases: readonly Lease[], now: number): Promise<void> {
    await this.#enter("release", undefined);
    for (const lease of leases) {
      const row = this.#find(lease);
      if (row !== undefined) this.#releaseLeases(row, now);
    }
  }

  async recordAttempt(): Promise<void> {
    await this.#enter("recordAttempt", undefined);
  }

  async recordSent(sendId: string, eventId: EventId): Promise<void> {
    await this.#enter("recordSent", undefined);
    const found = this.rows.flatMap(({ sends }) => sends).find(({ send }) => send.sendId === sendId);
    if (found !== undefined) found.eventId = eventId;
  }

  #releaseLeases(row: MemoryRow, wakeAt: number): void {
    row.holder = undefined;
    row.dueAt = wakeAt;
    if (row.state === "dispatching" && !row.a2aUnsettled) row.state = "queued";
  }

  #find(lease: Lease): MemoryRow | undefined {
    const row = this.row(lease.delegationId);
    const isHeld = row.holder === lease.holder && String(row.fence) === lease.fence && !isTerminal(row);
    return isHeld ? row : undefined;
  }

  async #held(method: string, lease: Lease, states?: readonly DelegationState[]): Promise<MemoryRow> {
    await this.#enter(method, lease.delegationId);
    const row = this.#find(lease);
    if (row === undefined || (states !== undefined && !states.includes(row.state))) {
      throw new DrawbridgeError("lease_lost", `delegation ${lease.delegationId} is held by another`);
    }
    return row;
  }

  async #enter(method: string, delegation: string | undefined): Promise<void> {
    await this.before(method);
    this.calls.push(delegation === undefined ? method : `${method}:${delegation}`);
  }
}
