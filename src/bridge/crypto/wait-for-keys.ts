// The intake envelope worker: reads encrypted events whose keys came late, and ends the wait for those that never come.
// Invariants: an event becomes delegations only under the fence of its claim; the wait ends at its deadline, after a last
// attempt; time in which the homeserver did not answer is added, once; a question is derived with its latest edit that can be
// read, and an edit waits until its question's wait has ended; while `encryption.mode` is not `on`, nothing is read.
import type { Logger } from "pino";
import type { Clock } from "../../domain/clock.ts";
import { errorName } from "../../domain/errors.ts";
import type { EventId, RoomId } from "../../domain/identifiers.ts";
import type { UnknownObject } from "../../domain/json.ts";
import { backoffMs } from "../../runtime/backoff.ts";
import { allEnded } from "../../runtime/concurrency.ts";
import { WorkQueue } from "../../runtime/work-queue.ts";
import type { AgentDirectory } from "../agents/loaded-agents.ts";
import type { BridgeConfig } from "../config.ts";
import { aboutOf, interpretMessages } from "../intake/interpret-messages.ts";
import type { Namespace } from "../intake/namespace.ts";
import { ghostsOf } from "../intake/open-encrypted.ts";
import { couldAsk, readDecrypted } from "../intake/read-events.ts";
import type { Admitted, Capacity } from "../ledger/admission-types.ts";
import type { Derivation } from "../ledger/envelope-derivation.ts";
import type { ClaimedIntakeEnvelope } from "../ledger/envelopes.ts";
import type { Ledger } from "../ledger/ledger.ts";
import { dueNow } from "../ledger/postgres.ts";
import type { ExpiryReason } from "../ledger/states.ts";
import type { GhostDevices } from "./ghost-devices.ts";
import { type Claim, createOpening, type Opening, type OpeningDependencies } from "./open-intake-envelope.ts";
import { type AskedFor, createKeyRequests } from "./send-key-requests.ts";

const BATCH = 32;
const LEASE_MS = 2 * 60_000;
const RETRY = { firstMs: 1_000, maxMs: 30_000 };
/** What waits for something that may end at any moment is tried again after a few seconds at most. */
const SOON_ATTEMPTS_MAX = 2;
/** How long a device may still turn out to be trusted, while its keys are queried, or an event to be readable, here or elsewhere. */
const GRACE_MS = 15_000;
const TRUST_RETRY_MS = 1_000;
/**
 * How long an event that no ghost of this process could read is left to the processes of its room's other ghosts, once it is
 * due: less while it holds its room, because whoever claims it next may have to end that.
 */
const OTHERS_TURN_MS = { inPlace: 1_500, behind: 30_000 };

export interface IntakeEnvelopeObserver {
  ended(end: "at_once" | "after_wait" | "catchup" | "key_request" | "not_trusted" | "expired"): void;
  keyRequest(outcome: "sent" | "failed" | "canceled"): void;
  derived(admitted: Admitted): void;
  expired(reason: ExpiryReason): void;
  failed(): void;
}

export interface ExpiryDependencies {
  readonly ledger: Pick<Ledger, "envelopes" | "memberships">;
  readonly clock: Clock;
  readonly log: Logger;
  readonly observe: Pick<IntakeEnvelopeObserver, "ended" | "expired" | "failed">;
}

export interface IntakeEnvelopeWorkerDependencies extends ExpiryDependencies, OpeningDependencies {
  readonly devices: OpeningDependencies["devices"] &
    Pick<GhostDevices, "sendToDevice" | "statuses" | "owns" | "beginSession">;
  readonly agents: Pick<AgentDirectory, "current">;
  readonly namespace: Namespace;
  readonly observe: IntakeEnvelopeObserver;
  readonly capacity: Capacity;
  readonly contextLifetimeMs: number;
  /** The times in it are in milliseconds. */
  readonly keyRequests: BridgeConfig["encryption"]["keyRequests"];
}

type Opened = Extract<Opening, { kind: "opened" }>;

export function createIntakeEnvelopeWorker(deps: IntakeEnvelopeWorkerDependencies) {
  const { ledger, devices, agents, namespace, clock, log, observe } = deps;
  const { capacity, contextLifetimeMs, keyRequests } = deps;
  const requests = createKeyRequests(devices, observe.keyRequest);
  const open = createOpening(deps);
  /** Events that are left to other processes, and until when. */
  const leftToOthers = new Map<EventId, number>();
  const queue = new WorkQueue({
    clock,
    concurrency: BATCH,
    claim,
    work,
    putOff: ({ envelope }) => againSoon(envelope),
    onError: failing(deps, "encrypted events that wait could not be worked on"),
  });

  async function keysCame(rooms: readonly RoomId[]): Promise<void> {
    if (rooms.length > 0 && (await ledger.envelopes.wake(rooms, clock.now())) > 0) queue.wake();
  }

  /** To be called when these events were redacted: their key requests are canceled. */
  async function redacted(events: readonly EventId[]): Promise<void> {
    await allEnded(events.map((event) => requests.ended(event)));
  }

  async function claim(limit: number) {
    const now = clock.now();
    for (const [event, until] of leftToOthers) if (until <= now) leftToOthers.delete(event);
    const except = [...leftToOthers.keys()];
    const claimed = await ledger.envelopes.claim({ limit, now, leaseUntil: now + LEASE_MS, except });
    const roomIds = [...new Set(claimed.map(({ room }) => room))];
    const facts = Promise.all([ledger.memberships.joinedGhosts(roomIds), agents.current()]);
    facts.catch(() => undefined);
    return claimed.map((envelope) => ({ envelope, facts }));
  }

  type Claimed = Awaited<ReturnType<typeof claim>>[number];

  async function work({ envelope, facts }: Claimed, draining: AbortSignal): Promise<void> {
    const [joined, { byGhost }] = await facts;
    const all = ghostsOf(envelope.room, joined, [], byGhost);
    const ghosts = all.filter((ghost) => devices.owns(ghost));
    const [only, ...others] = all;
    // They were given to another process meanwhile.
    if (only !== undefined && ghosts.length === 0) return ledger.envelopes.defer(envelope, clock.now());
    // Where it is known who will answer, the answer's key need not wait until the question has been read.
    if (only !== undefined && others.length === 0) void devices.beginSession(only, envelope.room);
    const claimed: Claim = { envelope, ghosts };
    // Every ghost has left, so none may read the event any more.
    if (ghosts.length === 0) return giveUp(envelope, "event_unavailable");
    if (envelope.questionWaits) return againSoon(envelope);
    // The ghost of another process may have the event, and wait for its key: then that process ends the wait. Or it has the key,
    // which was withheld from the ghosts of this one, or came wrong to them.
    const isShared = ghosts.length < all.length;
    const fetchUntil = (isShared ? envelope.deadline : envelope.admittedAt) + GRACE_MS;
    const keyUntil = isShared ? envelope.admittedAt + GRACE_MS : 0;
    const opening = await open(claimed, draining);
    switch (opening.kind) {
      case "opened":
        return derive(claimed, opening, draining);
      case "unreadable":
        // The homeserver gives a ghost nothing before it has joined, which the bridge may hear of later.
        if (opening.reason === "event_unavailable" && clock.now() < fetchUntil)
          return againSoon(envelope, isShared);
        if (opening.event !== undefined && clock.now() < keyUntil) return againSoon(envelope, true);
        return giveUp(envelope, opening.reason, opening.event && { ghosts, event: opening.event });
      case "not_trusted":
        return distrusted(envelope, { ghosts, event: opening.event });
      case "unanswered":
        return unanswered(envelope, opening.afterMs);
      case "missing_key":
        return missing(envelope, { ghosts, event: opening.event });
    }
  }

  /** After a failure, or behind its question: an edit is tried when that has ended its wait, and its derivation takes it along. */
  async function againSoon(envelope: ClaimedIntakeEnvelope, isOthersTurn = false): Promise<void> {
    const now = clock.now();
    const wakeAt = now + backoffMs(RETRY, Math.min(envelope.attempts, SOON_ATTEMPTS_MAX));
    const turnMs = envelope.place === undefined ? OTHERS_TURN_MS.behind : OTHERS_TURN_MS.inPlace;
    if (isOthersTurn) leftToOthers.set(envelope.event, wakeAt + turnMs);
    await ledger.envelopes.defer(envelope, wakeAt, { prolonged: now >= envelope.deadline });
  }

  /** The latest edit of the same question that comes after the intake envelope and can be opened now. */
  async function laterEdit({ envelope, ghosts }: Claim, draining: AbortSignal) {
    for (const later of await ledger.envelopes.laterEdits(envelope)) {
      const opening = await open({ envelope: later, ghosts }, draining);
      if (opening.kind !== "opened") continue;
      const { message } = readDecrypted(opening.event, opening.inside);
      if (message !== undefined && message.replaces === later.edits && couldAsk(message)) return message;
    }
    return undefined;
  }

  async function derive(claimed: Claim, opening: Opened, draining: AbortSignal): Promise<void> {
    const { envelope, ghosts } = claimed;
    const { event, inside, by } = opening;
    const { byGhost, partnerGhosts } = await agents.current();
    const { message } = readDecrypted(event, inside);
    const edit = await laterEdit(claimed, draining);
    // Of the edits of one question the last one counts.
    const isOutdated = envelope.edits !== undefined && edit !== undefined;
    const readable = message !== undefined && couldAsk(message) && !isOutdated ? [message] : [];
    const now = clock.now();
    const asked = {
      candidates: edit === undefined || isOutdated ? readable : [...readable, edit],
      reactions: [],
      waiting: [],
      deadline: 0,
      plainInEncrypted: false,
      cameAt: envelope.admittedAt,
      contextSince: now - contextLifetimeMs,
    };
    const derivation: Derivation = {
      about: { ...aboutOf(readable, partnerGhosts), rooms: [envelope.room] },
      derive: (known) => interpretMessages(asked, known, byGhost, namespace),
      capacity,
    };
    const admitted = await ledger.envelopes.derive(envelope, derivation, now);
    if (admitted.isBehind === true) return againSoon(envelope);
    // What came to another process waits for its ghost's owner, and for no key.
    const known = envelope.attempts === 0 && by === "after_wait" ? "at_once" : by;
    const end = envelope.keyRequests > 0 ? "key_request" : known;
    observe.ended(end);
    observe.derived(admitted);
    note(log, envelope, "derived", { by: end, delegations: admitted.admitted });
    if (envelope.keyRequests > 0) await requests.keyCame({ ghosts, event });
    if (edit !== undefined) await keysCame([envelope.room]);
  }

  /** Keys that were requested for it are requested no more, unless another event waits for them. */
  async function giveUp(envelope: ClaimedIntakeEnvelope, reason: ExpiryReason, asked?: AskedFor) {
    await expire(deps, envelope, reason);
    if (envelope.keyRequests > 0) await requests.ended(envelope.event, asked);
  }

  async function distrusted(envelope: ClaimedIntakeEnvelope, asked: AskedFor): Promise<void> {
    const now = clock.now();
    if (now >= Math.min(envelope.admittedAt + GRACE_MS, envelope.deadline)) {
      return giveUp(envelope, "device_not_trusted", asked);
    }
    await ledger.envelopes.defer(envelope, now + TRUST_RETRY_MS);
  }

  async function unanswered(envelope: ClaimedIntakeEnvelope, afterMs: number): Promise<void> {
    const now = clock.now();
    const end = envelope.deadline + (envelope.deadline - envelope.admittedAt);
    if (now >= end) return giveUp(envelope, reasonToEnd(envelope));
    const wakeAt = now + (afterMs === 0 ? 0 : backoffMs(RETRY, envelope.attempts, afterMs));
    const prolonged = now >= envelope.deadline;
    await ledger.envelopes.defer(envelope, Math.min(wakeAt, end), { prolonged });
  }

  async function missing(envelope: ClaimedIntakeEnvelope, asked: AskedFor): Promise<void> {
    const now = clock.now();
    if (now >= envelope.deadline) return giveUp(envelope, reasonToEnd(envelope), asked);
    const isDue = envelope.keyRequests < keyRequests.attempts && now >= requestDue(envelope, 0);
    const requested = isDue && (await requests.request(asked, now, requestWait(envelope)));
    const next = requested ? 1 : 0;
    const again = now + backoffMs(RETRY, envelope.attempts);
    const mayAsk = envelope.keyRequests + next < keyRequests.attempts;
    const wakeAt = mayAsk ? Math.max(now + 1, Math.min(again, requestDue(envelope, next))) : again;
    // Of a request that could not be sent the due time has passed.
    await ledger.envelopes.defer(envelope, isDue && !requested ? again : wakeAt, { requested });
  }

  function reasonToEnd({ keyRequests: made }: ClaimedIntakeEnvelope): ExpiryReason {
    const { attempts } = keyRequests;
    return attempts > 0 && made >= attempts ? "key_requests_exhausted" : "key_wait_elapsed";
  }

  function requestWait({ keyRequests: made }: ClaimedIntakeEnvelope, further = 0): number {
    const { firstAfter, longestWait } = keyRequests;
    return backoffMs({ firstMs: firstAfter, maxMs: longestWait }, made + further);
  }

  /** When the next request is due, or the one `further` after it. */
  function requestDue(envelope: ClaimedIntakeEnvelope, further: number): number {
    let due = envelope.admittedAt;
    for (let made = -envelope.keyRequests; made <= further; made++) due += requestWait(envelope, made);
    return due;
  }

  return { queue, keysCame, redacted };
}

function note(log: Logger, envelope: ClaimedIntakeEnvelope, what: string, more: UnknownObject): void {
  const { event: eventId, room: roomId, attempts, keyRequests } = envelope;
  log.info({ roomId, eventId, attempts, keyRequests, ...more }, `encrypted event ${what}`);
}

const failing =
  ({ log, observe }: ExpiryDependencies, message: string) =>
  (error: unknown) => {
    observe.failed();
    log.warn({ err: errorName(error) }, message);
  };

async function expire(deps: ExpiryDependencies, envelope: ClaimedIntakeEnvelope, reason: ExpiryReason) {
  const { ledger, clock, log, observe } = deps;
  await ledger.envelopes.expire(envelope, reason, clock.now());
  observe.ended(reason === "device_not_trusted" ? "not_trusted" : "expired");
  observe.expired(reason);
  note(log, envelope, "expired", { reason });
}

/** The queue that expires what is past its deadline, and puts the rest off until then. */
export function createIntakeEnvelopeExpiry(deps: ExpiryDependencies): WorkQueue<ClaimedIntakeEnvelope> {
  const { ledger, clock } = deps;
  return new WorkQueue({
    clock,
    concurrency: BATCH,
    claim: (limit) => ledger.envelopes.claim(dueNow(clock, limit, LEASE_MS)),
    work: (envelope) =>
      clock.now() < envelope.deadline
        ? ledger.envelopes.defer(envelope, envelope.deadline)
        : expire(deps, envelope, "key_wait_elapsed"),
    onError: failing(deps, "encrypted events that wait could not be ended"),
  });
}
