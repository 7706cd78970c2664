// Sends the notices that the ledger holds: each once, by the ghost it belongs to.
// Invariants: a notice is sent under its stored transaction ID with the attempt recorded first, so that nothing repeats it; a
// room that cannot be written to ends it, everything else is retried with growing waits, for a week; one room takes its share
// of the places.
import type { Logger } from "pino";
import type { Clock } from "../../domain/clock.ts";
import { errorName } from "../../domain/errors.ts";
import type { UserId } from "../../domain/identifiers.ts";
import { backoffMs } from "../../runtime/backoff.ts";
import { WorkQueue } from "../../runtime/work-queue.ts";
import type { AgentDirectory } from "../agents/loaded-agents.ts";
import { ghostName } from "../agents/refresh-cards.ts";
import { isPinned, isSenderAllowed } from "../agents/sender-policy.ts";
import type { CardTrustGate } from "../agents/trust.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { ClaimedNotice } from "../ledger/notices.ts";
import { dueNow } from "../ledger/postgres.ts";
import { type SenderDependencies, sendOnce } from "../matrix/send-once.ts";
import type { TextsOf } from "../texts/language-of-room.ts";
import { type DirectoryLine, noticeContent } from "./notice-event.ts";

const BATCH = 16;
const ROOM_SHARE = BATCH / 4;
const LEASE_MS = 3 * 60_000;
const BACKOFF = { firstMs: 2_000, maxMs: 10 * 60_000 };
/** Longer than any outage. A ghost's device that has stopped may never be reset. */
const RETRIED_MS = 7 * 24 * 60 * 60_000;

export interface NoticeDependencies extends SenderDependencies {
  readonly ledger: Pick<Ledger, "notices" | "targets">;
  readonly agents: Pick<AgentDirectory, "current">;
  readonly cards: Pick<CardTrustGate, "verifiedCard">;
  readonly textsOf: TextsOf;
  readonly clock: Clock;
  readonly log: Logger;
  readonly readsEncrypted: boolean;
  readonly onError?: (error: unknown) => void;
}

export function createNoticeQueue(deps: NoticeDependencies): WorkQueue<ClaimedNotice> {
  const { ledger, agents, cards, clock, log, readsEncrypted, onError } = deps;

  async function send(notice: ClaimedNotice, signal?: AbortSignal): Promise<void> {
    const { kind, roomId, ghost, attempts, transactionId, sourceEventId, firstAttemptedAt } = notice;
    const directory = kind === "agent_directory" ? await directoryLines(notice.asker) : [];
    const event = {
      ...{ roomId, ghost, transactionId, sourceEventId, firstAttemptedAt, eventType: "m.room.message" },
      content: noticeContent(notice, { texts: deps.textsOf(roomId), readsEncrypted, directory }),
      // Who was refused has to learn why. The list of agents and the help are answers.
      forAllDevices: kind !== "agent_directory" && kind !== "help",
      recordAttempt: (now: number) => ledger.notices.recordAttempt(notice, now),
    };
    const result = await sendOnce(deps, event, signal);
    if (result.kind === "sent") await ledger.notices.recordSent(notice, result.eventId);
    else if (result.kind === "refused" || clock.now() - notice.createdAt >= RETRIED_MS)
      await ledger.notices.drop(notice);
    else {
      const waitMs = result.afterMs === 0 ? 0 : backoffMs(BACKOFF, attempts, result.afterMs);
      await ledger.notices.defer(notice, clock.now() + waitMs);
    }
    log.info({ kind, roomId, ghost, attempts, result: result.kind }, "notice");
  }

  /** The agents that somebody may ask. One is available by a recorded trust decision on its pin; no card is fetched. */
  async function directoryLines(asker: UserId | undefined): Promise<readonly DirectoryLine[]> {
    const { byGhost } = await agents.current();
    const allowed = [...byGhost.values()].filter(({ entry }) => asker && isSenderAllowed(entry, asker));
    return await Promise.all(
      allowed.map(async (target) => {
        const { ghost, agentId, entry, fingerprint } = target;
        const record = await ledger.targets.get(ghost);
        const verified = record?.trust === "verified" && record.targetFingerprint === fingerprint;
        const available = isPinned(entry) && verified;
        const card = available ? cards.verifiedCard(target) : undefined;
        const name = card === undefined ? (entry.displayName ?? agentId) : ghostName(target, card);
        return { ghost, name, available, description: card?.description, skills: card?.skills };
      }),
    );
  }

  return new WorkQueue({
    clock,
    concurrency: BATCH,
    claim: (limit, claimed) =>
      ledger.notices.claim({
        ...dueNow(clock, limit, LEASE_MS),
        share: { most: ROOM_SHARE, inProgress: claimed.map(({ roomId }) => roomId) },
      }),
    work: send,
    putOff: (notice) => ledger.notices.defer(notice, clock.now() + backoffMs(BACKOFF, notice.attempts)),
    onError: (error) => {
      log.warn({ err: errorName(error) }, "notices could not be worked on");
      onError?.(error);
    },
  });
}
