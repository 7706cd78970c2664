// What a purge leaves as evidence: what was asked, what is gone, what stays, in counts.
// Invariant: what the homeserver cannot delete is named by one item that somebody has to answer for; nothing
// that stays is left out because it is small.
import {
  type EvidenceItem,
  type EvidenceItemBody,
  KEPT_BY_CONTRACT,
  operatorItem,
} from "../../../records/format/evidence-item.ts";
import type { PrivateRecord } from "../private-record/schema.ts";
import type { BegunPurge, PurgePlan } from "./purge-plan.ts";

interface PurgeOutcome {
  readonly plan: PurgePlan;
  readonly begun: BegunPurge;
  readonly after: BegunPurge["before"];
  readonly isDestination: boolean;
  readonly at: string;
  readonly backups: PrivateRecord["duties"]["backups"];
}

/** Rows that stay only because rooms stay, as the record says. */
const GONE_WITH_ROOMS = new Set(["events", "room_memberships", "receipts_linearized", "destination_rooms"]);
const MEDIA_TABLES = new Set(["remote_media_cache", "remote_media_cache_thumbnails"]);
/** The subject that a waiver names. */
export const NOT_PURGEABLE = "rows_not_purgeable";

export function purgeEvidence(outcome: PurgeOutcome): readonly EvidenceItem[] {
  const { plan, begun, after, at, backups } = outcome;
  const { media, partner } = plan;
  // Rooms are where the data came from; no plane is closed by deleting it.
  const item = (probe: string, references: readonly string[], more: Partial<EvidenceItemBody> = {}) =>
    operatorItem(Date.parse(at), {
      ...{ plane: "rooms", partner, subject: partner, verdict: "closed", layer: "homeserver" },
      ...{ probe, references: [...references], ...more },
    });
  const mediaCounts = [
    `files=${media.files.length}`,
    `released_from_quarantine=${media.files.filter(({ quarantined }) => quarantined).length}`,
    `kept_in_quarantine=${media.kept_in_quarantine}`,
    `other_servers_files=${media.other_files ?? "unknown"}`,
  ];
  const kept = media.purge ? null : KEPT_BY_CONTRACT;
  const items = [item("purge_media", [plan.digest, ...mediaCounts], { reason: kept })];
  for (const { room: subject, how, before, after: events } of begun.rooms) {
    const ofPartner = plan.rooms.find(({ room }) => room === subject)?.events.partner ?? 0;
    // What is left is of others: purging history leaves state and the last event.
    const counts = [`events_before=${before}`, `partner_events_before=${ofPartner}`];
    const references = [plan.digest, ...counts, `events_after=${events}`];
    items.push(item(how === "room" ? "purge_room" : "purge_history", references, { subject }));
  }
  const stays = plan.staying.filter(({ events }) => (events ?? 0) > 0);
  if (stays.length > 0) {
    const isAgreed = stays.every(({ reason }) => reason === KEPT_BY_CONTRACT);
    const events = stays.reduce((sum, one) => sum + (one.events ?? 0), 0);
    const reason = isAgreed ? KEPT_BY_CONTRACT : "not_named_in_the_record";
    items.push(item("history_kept", [`rooms=${stays.length}`, `partner_events=${events}`], { reason }));
  }
  if (begun.before !== null && after !== null) {
    items.push(item("rows_before", rows(begun.before), { layer: "database" }));
    items.push(item("rows_after", rows(after), { layer: "database" }));
  }
  const left = leftOver(outcome);
  if (left.length > 0) {
    const about = { subject: NOT_PURGEABLE, verdict: "unknown", reason: "no_admin_interface" } as const;
    items.push(item("rows_left", left, { ...about, layer: after === null ? "homeserver" : "database" }));
  }
  // The owner attests it; nobody has observed it.
  const attested = { vantage: "nobody", layer: "attestation", reason: "attested" } as const;
  return [...items, item("backup_expiry", [`owner=${backups.owner}`, `by=${backups.expireBy}`], attested)];
}

function rows(counts: Readonly<Record<string, number>>): string[] {
  return Object.entries(counts).map(([table, n]) => `${table}=${n}`);
}

/** What stays against the record's will, because nothing of the homeserver's can delete it. */
function leftOver({ plan, begun, after, isDestination }: PurgeOutcome): string[] {
  const history = begun.rooms.filter(({ how, after: n }) => how === "history" && n > 0);
  const found = history.map(({ room, after: n }) => `${room}=${n}`).slice(0, 200);
  if (after === null) {
    if (plan.media.purge && !plan.media.is_whole) found.push("media_of_encrypted_rooms=unknown");
    return [...found, "device_lists_remote_cache=unknown", ...(isDestination ? ["destinations=1"] : [])];
  }
  const roomsStay = plan.staying.some(({ events }) => events !== null) || history.length > 0;
  for (const [table, n] of Object.entries(after)) {
    if (n === 0 || (GONE_WITH_ROOMS.has(table) && roomsStay)) continue;
    const isKept = MEDIA_TABLES.has(table) && (!plan.media.purge || plan.media.kept_in_quarantine > 0);
    if (!isKept) found.push(`${table}=${n}`);
  }
  return found;
}
