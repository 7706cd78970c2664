// Every field of the private record by its path, as templates, `set` and `show` speak of it.
// Invariant: the paths are those of the schema, in its order (proved by a test).

export interface RecordField {
  /** Dotted path, such as `security.incidentOwner`. */
  readonly path: string;
  /** What stands there, for a person. */
  readonly says: string;
  /** A record is complete without it. */
  readonly optional?: true;
  /** Takes several values. */
  readonly list?: "items" | "rooms";
  readonly boolean?: true;
  /** Nobody but a role or a staff number is named here. */
  readonly role?: true;
}

const role = { role: true } as const;
const items = { list: "items" } as const;

export const RECORD_FIELDS: readonly RecordField[] = [
  { path: "partner.legalEntity", says: "registered name of the partner's legal entity" },
  { path: "partner.serverName", says: "its server name" },
  { path: "revocation.kind", says: "full, partial or emergency" },
  { path: "revocation.trigger", says: "planned_departure, contract_end or suspected_compromise" },
  { path: "security.incidentOwner", says: "role that owns security or the incident", ...role },
  { path: "security.containmentAuthority", says: "role that may order containment", ...role },
  { path: "technical.owner", says: "role that carries the removal out", ...role },
  { path: "technical.rollbackOwner", says: "role that would roll it back", ...role },
  { path: "change.reference", says: "change ticket or pull request" },
  { path: "change.rollback", says: "reference to the rollback plan" },
  { path: "affected.rooms", says: "room IDs; [] for none", ...items },
  { path: "affected.routes", says: "public paths at the gateway; [] for none", ...items },
  { path: "affected.agents", says: "agents by name; [] for none", ...items },
  { path: "affected.oidcClient", says: "the partner's client here, or none" },
  { path: "maintenance.from", says: "2026-01-31T03:00:00Z" },
  { path: "maintenance.until", says: "2026-01-31T05:00:00Z" },
  { path: "maintenance.expectedInterruption", says: "of others, such as 30s" },
  { path: "duties.retention.state", says: "ended, or kept until a day" },
  { path: "duties.retention.until", says: "the day, where copies are kept", optional: true },
  { path: "duties.purge.remoteMedia", says: "purge or keep cached copies of its files" },
  { path: "duties.purge.quarantinedMedia", says: "purge or keep those in quarantine" },
  {
    path: "duties.purge.rooms",
    says: "{room, how} each: room (all), history (others' events), keep; [] for none",
    list: "rooms",
  },
  {
    path: "duties.purge.waiver",
    says: "why nothing is purged, as a code, where nothing is",
    optional: true,
  },
  { path: "duties.backups.owner", says: "role that attests that backups expire", ...role },
  { path: "duties.backups.expireBy", says: "the day by which they do, such as 2027-01-31" },
  { path: "attestation.own", says: "role that attests the completion here", ...role },
  { path: "attestation.partner", says: "role that attests it at the partner", ...role },
  { path: "readmission.possible", says: "true or false", boolean: true },
  {
    path: "readmission.owner",
    says: "role that would decide it, where it is possible",
    optional: true,
    ...role,
  },
  { path: "readmission.conditions", says: "codes; [] for none", ...items },
];

export function recordField(path: string): RecordField | undefined {
  return RECORD_FIELDS.find((field) => field.path === path);
}
