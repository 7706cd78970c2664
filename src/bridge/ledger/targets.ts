// Targets: the last trust decision on each ghost's card, audited (svc.agent_card.v1) when it changes.
import type { AgentId, GhostMxid, ServerName } from "../../domain/identifiers.ts";
import { oneRow, type Queryable, rows, type Statement, toTime } from "./statement.ts";
import type { TargetTrust } from "./states.ts";
import type { TargetRecord } from "./types.ts";

const TARGETS: Statement = {
  name: "targets",
  text: `SELECT ghost_mxid, agent_id, trust, target_fingerprint, card_digest, agent_version, checked_at
         FROM bridge_targets WHERE $1::text IS NULL OR ghost_mxid = $1`,
};

interface TargetRow {
  ghost_mxid: string;
  agent_id: string;
  trust: TargetTrust;
  target_fingerprint: string;
  card_digest: string | null;
  agent_version: string | null;
  checked_at: Date;
}

async function recorded(on: Queryable, ghost: GhostMxid | null) {
  return (await rows<TargetRow>(on, TARGETS, [ghost])).map((row) => ({
    ghost: row.ghost_mxid as GhostMxid,
    agentId: row.agent_id as AgentId,
    trust: row.trust,
    targetFingerprint: row.target_fingerprint,
    cardDigest: row.card_digest ?? undefined,
    agentVersion: row.agent_version ?? undefined,
    checkedAt: row.checked_at.getTime(),
  }));
}

export async function target(on: Queryable, ghost: GhostMxid): Promise<TargetRecord | undefined> {
  return (await recorded(on, ghost))[0];
}

export async function targets(on: Queryable): Promise<(TargetRecord & { readonly agentId: AgentId })[]> {
  return await recorded(on, null);
}

const RECORD: Statement = {
  name: "record_target",
  text: `
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
  SELECT count(*)::int AS changed FROM changed`,
};

export async function recordTarget(
  on: Queryable,
  record: TargetRecord & {
    readonly agentId: AgentId;
    readonly keyId: string | undefined;
    readonly origin: ServerName | undefined;
  },
): Promise<boolean> {
  const row = await oneRow<{ changed: number }>(on, RECORD, [
    record.ghost,
    record.agentId,
    record.trust,
    record.targetFingerprint,
    record.keyId ?? null,
    record.cardDigest ?? null,
    record.agentVersion ?? null,
    toTime(record.checkedAt),
    record.origin ?? null,
  ]);
  return row.changed === 1;
}
