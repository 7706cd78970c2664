// Says the notices that the ledger holds: each once, by the ghost it belongs to.
// Invariants: a notice's marker was claimed before it came here, so a crash or a second process repeats
// nothing; it is sent under its stored transaction ID with the attempt recorded first; a room that cannot be
// written to ends it, everything else is retried with growing waits.
import type { Logger } from "pino";
import type { Clock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { backoffMs } from "../../runtime/backoff.ts";
import { allEnded, WorkLoop } from "../../runtime/work-loop.ts";
import type { AgentDirectory } from "../agents/directory.ts";
import { isPinned } from "../agents/sender-policy.ts";
import type { ClaimedNotice, NoticeLedger, TargetLedger } from "../ledger/types.ts";
import { type SenderDependencies, sendOnce } from "../matrix/send.ts";
import { type DirectoryLine, noticeContent } from "./texts.ts";

const BATCH = 16;
const LEASE_MS = 3 * 60_000;
const BACKOFF = { firstMs: 2_000, maxMs: 10 * 60_000 };

export interface NoticeDependencies extends SenderDependencies {
  readonly ledger: NoticeLedger & Pick<TargetLedger, "target">;
  readonly agents: Pick<AgentDirectory, "current">;
  readonly clock: Clock;
  readonly log: Logger;
  /** Whether ghosts take part in encrypted rooms (`encryption.mode: on`). */
  readonly readsEncrypted: boolean;
  readonly pollIntervalMs?: number;
}

export class NoticeWorker {
  readonly #deps: NoticeDependencies;
  readonly #loop: WorkLoop;

  constructor(deps: NoticeDependencies) {
    this.#deps = deps;
    this.#loop = new WorkLoop({
      clock: deps.clock,
      round: (signal) => this.round(signal),
      onError: (error) =>
        deps.log.warn(
          { err: error instanceof Error ? error.name : "unknown" },
          "notices could not be worked on",
        ),
      ...(deps.pollIntervalMs !== undefined && { pollIntervalMs: deps.pollIntervalMs }),
    });
  }

  start(): void {
    this.#loop.start();
  }

  wake(): void {
    this.#loop.wake();
  }

  drain(): Promise<void> {
    return this.#loop.drain();
  }

  /**
   * Says what is due once; true when more may be due.
   * @param signal aborts when draining: requests in flight end, and what is not said is due again at once
   */
  async round(signal?: AbortSignal): Promise<boolean> {
    const now = this.#deps.clock.now();
    const claimed = await this.#deps.ledger.claimNotices({ limit: BATCH, now, leaseUntil: now + LEASE_MS });
    await allEnded(claimed.map((notice) => this.#sayIfHeld(notice, signal)));
    return claimed.length === BATCH;
  }

  /** A notice that another has by now is the other's to say. */
  async #sayIfHeld(notice: ClaimedNotice, signal?: AbortSignal): Promise<void> {
    try {
      await this.#say(notice, signal);
    } catch (error) {
      if (!(error instanceof DrawbridgeError) || error.code !== "lease_lost") throw error;
    }
  }

  async #say(notice: ClaimedNotice, signal?: AbortSignal): Promise<void> {
    const { ledger, agents, clock, log, readsEncrypted } = this.#deps;
    const { kind, roomId, ghost, attempts } = notice;
    const lines = kind === "agent_directory" ? await directoryLines(agents, ledger) : [];
    const result = await sendOnce(
      this.#deps,
      {
        roomId,
        ghost,
        eventType: "m.room.message",
        content: noticeContent(notice, lines, readsEncrypted),
        transactionId: notice.transactionId,
        sourceEventId: notice.sourceEventId,
        firstAttemptedAt: notice.firstAttemptedAt,
        recordAttempt: (now) => ledger.noticeAttempted(notice, now),
      },
      signal,
    );
    switch (result.kind) {
      case "sent":
        await ledger.noticeSent(notice, result.eventId, clock.now());
        break;
      case "retry": {
        const isStopped = result.afterMs === 0;
        const waitMs = isStopped ? 0 : backoffMs(BACKOFF, attempts, result.afterMs);
        await ledger.noticeDeferred(notice, clock.now() + waitMs);
        break;
      }
      case "refused":
        await ledger.noticeDropped(notice, clock.now());
        break;
    }
    log.info({ kind, roomId, ghost, attempts, result: result.kind }, "notice");
  }
}

/**
 * The configured agents as the directory notice lists them. An agent counts as available only by a trust decision
 * on record for its present pin; nothing is fetched to answer `!agents`.
 */
async function directoryLines(
  agents: Pick<AgentDirectory, "current">,
  targets: Pick<TargetLedger, "target">,
): Promise<readonly DirectoryLine[]> {
  const { byGhost } = await agents.current();
  return await Promise.all(
    [...byGhost.values()].map(async ({ ghost, agentId, entry, fingerprint }) => {
      const record = await targets.target(ghost);
      const verified = record?.trust === "verified" && record.targetFingerprint === fingerprint;
      return { ghost, name: entry.displayName ?? agentId, available: isPinned(entry) && verified };
    }),
  );
}
