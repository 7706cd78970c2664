// What an encrypted event is known by between its arrival and its derivation, without keeping any of it.
// Invariant: two events have the same fingerprint only if ID, room, sender, type, time and content agree.
import { canonicalize } from "../../domain/canonicalize.ts";
import { sha256 } from "../../domain/digest.ts";
import type { Json } from "../../domain/json.ts";

const FIELDS = ["event_id", "room_id", "sender", "type", "origin_server_ts", "content"] as const;

/**
 * SHA-256 over the event's canonical form (RFC 8785), of what the homeserver cannot add to or leave out.
 * Undefined for an event that has no canonical form, or is nested too deep to write down.
 */
export function eventFingerprint(raw: Readonly<Record<string, unknown>>): Buffer | undefined {
  try {
    return sha256(canonicalize(FIELDS.map((field) => (raw[field] ?? null) as Json)));
  } catch {
    return undefined;
  }
}
