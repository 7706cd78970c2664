// svc.federation.readmission.v1: that a partner comes back as a new one, and, at the end, what proved it.
// Invariants: content-free; one record an act, committed; every field is an identifier, a digest or a time.
// Published as docs/reference/schemas/svc.federation.readmission.v1.schema.json.
import * as z from "zod";
import { Sha256Digest } from "../../domain/identifier-fields.ts";
import { parseJson } from "../../domain/json.ts";
import { GitRevision, Identifier, Instant, OrganisationName, RunId } from "../../records/format/fields.ts";
import { PLANE_NAMES } from "../plane-order.ts";

export const RoomsChoice = z.enum(["new", "reopen"]);
export type RoomsChoice = z.output<typeof RoomsChoice>;

export const ReadmissionRecord = z.strictObject({
  schema: z.literal("svc.federation.readmission.v1"),
  act: z.enum(["opened", "completed"]),
  readmission: RunId,
  server_name: OrganisationName,
  azp: Identifier,
  approval: Identifier,
  new_identities: Sha256Digest,
  git_revision: GitRevision,
  timestamp: Instant,
  retired: z.strictObject({
    card_keys: z.array(Identifier),
    clients: z.array(Identifier),
    server_keys: z.array(Identifier),
  }),
  /** `new`: shared rooms are new ones; `reopen`: kept ones were opened again. Null before it was chosen. */
  rooms: RoomsChoice.nullable(),
  /** Shared rooms that a new one stands for, since the removal or by the re-admission. */
  rooms_replaced: z.int().min(0),
  /** Planes that are open and in force, in order, with the digests of what was observed. */
  planes: z.array(
    z.strictObject({
      plane: z.enum(PLANE_NAMES),
      revision: GitRevision,
      evidence: z.array(Sha256Digest),
      not_applicable: z.array(Identifier).default([]),
    }),
  ),
});
export type ReadmissionRecord = z.output<typeof ReadmissionRecord>;

export const READMISSIONS = "records/readmission";

export function readmissionRecordsIn(texts: Iterable<string>): ReadmissionRecord[] {
  return [...texts].flatMap((text) => ReadmissionRecord.safeParse(parseJson(text)).data ?? []);
}

export function readmissionRecordPath(record: ReadmissionRecord): string {
  return recordPath(READMISSIONS, record, `${record.readmission.slice(0, 8)}-${record.act}`);
}

/** Such as `records/containment/20260102T030405.678Z-b.test-contain.json`: when, about whom, what. */
export function recordPath(
  folder: string,
  { timestamp, server_name }: Pick<ReadmissionRecord, "timestamp" | "server_name">,
  what: string,
): string {
  // A server name may have a port or an IPv6 address, which not every file system takes in a name.
  const server = server_name.replaceAll(/[^A-Za-z0-9.-]/g, "_");
  return `${folder}/${timestamp.replaceAll(/[-:]/g, "")}-${server}-${what}.json`;
}
