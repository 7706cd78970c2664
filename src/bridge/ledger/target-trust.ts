// Targets: the last trust decision on each ghost's Agent Card. A decision that changes is audited (svc.agent_card.v1).
import type { Pool } from "pg";
import type { AgentId, GhostMxid, ServerName } from "../../domain/identifiers.ts";
import { statement, toTime } from "./postgres.ts";
import type { TargetTrust } from "./states.ts";

export interface TargetRecord {
  readonly ghost: GhostMxid;
  readonly agentId: AgentId;
  readonly trust: TargetTrust;
  /** The pinned target that the decision is about (see `targetFingerprint`). */
  readonly targetFingerprint: string;
  readonly cardDigest?: string | undefined;
  readonly agentVersion?: string | undefined;
  readonly checkedAt: number;
}

/** A trust decision, with what its audit record says about the card. */
export interface TargetDecision extends TargetRecord {
  readonly keyId?: string | undefined;
  readonly origin?: ServerName | undefined;
}

const TARGETS = statement<TargetRecord>("targets")`
  SELECT ghost_mxid AS ghost, agent_id AS "agentId", trust, target_fingerprint AS "targetFingerprint",
    card_digest AS "cardDigest", agent_version AS "agentVersion", checked_at AS "checkedAt"
  FROM bridge_targets WHERE $1::text IS NULL OR ghost_mxid = $1`;

const RECORD = statement<{ changed: number }>("record_target")`
  WITH changed AS (
    INSERT INTO bridge_targets AS t
      (ghost_mxid, agent_id, trust, target_fingerprint, key_id, card_digest, agent_version, checked_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    ON CONFLICT (ghost_mxid) DO UPDATE SET
      agent_id = excluded.agent_id, trust = excluded.trust, target_fingerprint = excluded.target_fingerprint,
      key_id = excluded.key_id, card_digest = excluded.card_digest, agent_version = excluded.agent_version,
      checked_at = excluded.checked_at
    WHERE (t.trust, t.target_fingerprint, t.card_digest)
        IS DISTINCT FROM (excluded.trust, excluded.target_fingerprint, excluded.card_digest)
      AND (t.trust = 'verified' OR excluded.trust = 'quarantined' OR t.checked_at = $10)
    RETURNING ghost_mxid
  ), audited AS (
    INSERT INTO bridge_audit (schema, record, created_at)
    SELECT 'svc.agent_card.v1', jsonb_build_object(
      'schema', 'svc.agent_card.v1', 'time', bridge_time($8),
      'outcome', CASE $3 WHEN 'verified' THEN 'accepted' ELSE 'rejected' END,
      'reason', CASE $3 WHEN 'verified' THEN 'agent_card_verified' ELSE 'agent_card_untrusted' END,
      'target', jsonb_build_object('agent', $2::text, 'ghost', $1::text, 'fingerprint', $4::text,
        'agent_version', $7::text),
      'origin', $9::text, 'key_id', $5::text, 'card_digest', $6::text), $8
    FROM changed
  )
  SELECT count(*)::int AS changed FROM changed`;

export function createTargets(pool: Pool) {
  return {
    get: (ghost: GhostMxid) => TARGETS.first(pool, [ghost]),
    list: () => TARGETS.rows(pool, [null]),

    /**
     * Records a decision; `recorded`: it differs from the recorded one, and there is an audit record of it.
     * @param previous the recorded decision when this one was begun: verified is not recorded over a later quarantine
     */
    async record(decision: TargetDecision, previous?: Pick<TargetRecord, "trust" | "checkedAt">) {
      const { ghost, agentId, trust, targetFingerprint, checkedAt } = decision;
      const { keyId, cardDigest, agentVersion, origin } = decision;
      const target = [ghost, agentId, trust, targetFingerprint];
      const quarantinedAt = previous?.trust === "quarantined" ? toTime(previous.checkedAt) : null;
      const card = [keyId, cardDigest, agentVersion, toTime(checkedAt), origin];
      const { changed } = await RECORD.one(pool, [...target, ...card, quarantinedAt]);
      if (changed === 1) return "recorded";
      const isOvertaken =
        trust === "verified" && (await TARGETS.first(pool, [ghost]))?.trust === "quarantined";
      return isOvertaken ? "overtaken" : "unchanged";
    },
  };
}
