// Keeps each target's trust and each ghost's name as the agent's card says. Invariants: agents.yaml is read each second, so
// that a change takes effect without a question; every card is verified again before its last decision expires; a target whose
// entry is gone has its pin revoked, even if no bridge ran; only a verified card names a ghost.
import type { Logger } from "pino";
import type { AgentCard } from "../../cards/card-fields.ts";
import type { Clock } from "../../domain/clock.ts";
import { errorName } from "../../domain/errors.ts";
import type { GhostMxid } from "../../domain/identifiers.ts";
import { visibleLine } from "../../domain/printable.ts";
import { WorkLoop } from "../../runtime/work-loop.ts";
import type { AgentDirectory, AgentTarget } from "./loaded-agents.ts";
import { isPinned } from "./sender-policy.ts";
import type { CardTrustGate } from "./trust.ts";

export interface CardRefreshOptions {
  readonly directory: AgentDirectory;
  readonly gate: Pick<CardTrustGate, "refresh" | "revoke" | "revokeMissing" | "isOfPresentPin">;
  /** Sets a ghost's display name; called again and again, so it does nothing when the name is set already. */
  readonly setProfile: (
    ghost: GhostMxid,
    displayName: string,
    chosenBy: "operator" | "card",
    signal?: AbortSignal,
  ) => Promise<{ readonly kind: string }>;
  readonly clock: Clock;
  readonly log: Logger;
  readonly onError?: (error: unknown) => void;
}

/** Below the five minutes for which a decision is good, so that dispatch does not wait for a card. */
const REFRESH_MS = 4 * 60_000;
/** How long a repaired card may go unnoticed while no question for it comes. */
const QUARANTINED_MS = 60_000;
const RETRY_MS = 15_000;
const POLL_MS = 1_000;
const CONCURRENCY = 8;
const NAME_LENGTH_MAX = 100;

export function createCardRefresh({ directory, gate, setProfile, clock, log, onError }: CardRefreshOptions) {
  const states = new Map<GhostMxid, { readonly target: AgentTarget; readonly dueAt: number }>();
  let recordedChecked = false;
  const loop = new WorkLoop({ clock, round: syncDue, onError: failed, pollIntervalMs: POLL_MS });

  async function syncDue(signal?: AbortSignal): Promise<void> {
    const { byGhost } = await directory.current();
    if (!recordedChecked) {
      await gate.revokeMissing(byGhost);
      recordedChecked = true;
    }
    for (const [ghost, { target }] of [...states]) {
      if (byGhost.has(ghost)) continue;
      await gate.revoke(target);
      states.delete(ghost);
    }
    const due = [...byGhost.values()].filter((target) => {
      const state = states.get(target.ghost);
      if (state === undefined || clock.now() >= state.dueAt || !isSame(state.target, target)) return true;
      // A question met an entry that was changed and changed back between two rounds.
      return !gate.isOfPresentPin(target);
    });
    while (due.length > 0 && signal?.aborted !== true) {
      await Promise.all(due.splice(0, CONCURRENCY).map((target) => sync(target, signal)));
    }
  }

  async function sync(target: AgentTarget, signal?: AbortSignal): Promise<void> {
    let nextMs = RETRY_MS;
    try {
      const decision = await gate.refresh(target);
      if (decision.trust === "quarantined") nextMs = QUARANTINED_MS;
      else if (decision.trust === "unknown") nextMs = Math.min(decision.retryAfterMs, RETRY_MS);
      else {
        const chosenBy = target.entry.displayName === undefined ? "card" : "operator";
        const profile = await setProfile(target.ghost, ghostName(target, decision.card), chosenBy, signal);
        if (profile.kind === "ok") nextMs = REFRESH_MS;
      }
    } catch (error) {
      failed(error, target);
    }
    states.set(target.ghost, { target, dueAt: clock.now() + nextMs });
  }

  function failed(error: unknown, target?: AgentTarget): void {
    log.error({ event: "card_refresh_failed", agent: target?.agentId, error: errorName(error) });
    onError?.(error);
  }

  return { syncDue, loop };
}

function isSame(one: AgentTarget, other: AgentTarget): boolean {
  return (
    one.fingerprint === other.fingerprint &&
    isPinned(one.entry) === isPinned(other.entry) &&
    one.entry.displayName === other.entry.displayName
  );
}

/** The name shown in rooms: the operator's, or the card's with the agent's organisation, without what could mislead. */
export function ghostName(target: AgentTarget, card: AgentCard): string {
  if (target.entry.displayName !== undefined) return target.entry.displayName;
  const name = shortened(card.name) || target.agentId;
  const organisation = shortened(card.provider?.organization ?? "");
  return organisation === "" ? name : `${name} · ${organisation}`;
}

const shortened = (text: string) => [...visibleLine(text)].slice(0, NAME_LENGTH_MAX).join("");
