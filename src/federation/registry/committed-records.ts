// svc.federation.containment.v1: that a partner was contained, or restored; svc.federation.readmission.v1: that one comes back
// as a new one, and, at the end, what proved it; and which records end a containment. Invariants: content-free, so that every
// field is an identifier, a digest or a time; one record an act, committed with it; its file's name says when, whom and what.
// Published in docs/reference/schemas.
import * as z from "zod";
import { sha256Tagged } from "../../domain/digest.ts";
import { Sha256Digest } from "../../domain/identifier-fields.ts";
import { parseJson } from "../../domain/json.ts";
import { GitRevision, Identifier, Instant, OrganisationName, RunId } from "../../records/format/fields.ts";
import { PLANE_NAMES } from "../plane-order.ts";
import { Partner } from "./partner.ts";

const Identifiers = z.array(Identifier);
export const RoomsChoice = z.enum(["new", "reopen"]);
export type RoomsChoice = z.output<typeof RoomsChoice>;

export const ReadmissionRecord = z.strictObject({
  schema: z.literal("svc.federation.readmission.v1"),
  act: z.enum(["opened", "completed"]),
  readmission: RunId,
  ...{ server_name: OrganisationName, azp: Identifier, approval: Identifier },
  ...{ new_identities: Sha256Digest, git_revision: GitRevision, timestamp: Instant },
  retired: z.strictObject({ card_keys: Identifiers, clients: Identifiers, server_keys: Identifiers }),
  /** `new`: shared rooms are new ones; `reopen`: kept ones were opened again. Null before it was chosen. */
  rooms: RoomsChoice.nullable(),
  /** Shared rooms that a new one stands for, since the removal or by the re-admission. */
  rooms_replaced: z.int().min(0),
  /** Planes that are open and in force, in order, with the digests of what was observed. */
  planes: z.array(
    z.strictObject({
      ...{ plane: z.enum(PLANE_NAMES), revision: GitRevision },
      ...{ evidence: z.array(Sha256Digest), not_applicable: Identifiers.default([]) },
    }),
  ),
});
export type ReadmissionRecord = z.output<typeof ReadmissionRecord>;
export const READMISSIONS = "records/readmission";

export const readmissionRecordsIn = (texts: Iterable<string>): ReadmissionRecord[] =>
  [...texts].flatMap((text) => ReadmissionRecord.safeParse(parseJson(text)).data ?? []);

export const readmissionRecordPath = (record: ReadmissionRecord): string =>
  recordPath(READMISSIONS, record, `${record.readmission.slice(0, 8)}-${record.act}`);

/** Such as `records/containment/20260102T030405.678Z-b.test-contain.json`: when, about whom, what. */
function recordPath(folder: string, { timestamp, server_name }: z.output<typeof Ending>, what: string) {
  // A server name may have a port or an IPv6 address, which not every file system takes in a name.
  const server = server_name.replaceAll(/[^A-Za-z0-9.-]/g, "_");
  return `${folder}/${timestamp.replaceAll(/[-:]/g, "")}-${server}-${what}.json`;
}

export const Act = z.enum(["contain", "restore"]);
export type Act = z.output<typeof Act>;

export const ContainmentRecord = z.strictObject({
  schema: z.literal("svc.federation.containment.v1"),
  ...{ act: Act, server_name: Identifier, azp: Identifier },
  classification: Partner.shape.classification,
  /** The commit whose registry the re-render was made from, this act's change aside. */
  git_revision: GitRevision,
  timestamp: Instant,
  planes: z.tuple([z.literal("gateway"), z.literal("card"), z.literal("rooms"), z.literal("border")]),
});
export type ContainmentRecord = z.output<typeof ContainmentRecord>;
export const CONTAINMENTS = "records/containment";

export const containmentRecordsOf = (serverName: string, texts: ReadonlyMap<string, string>) =>
  [...texts].flatMap(([path, text]) => {
    const record = ContainmentRecord.safeParse(parseJson(text)).data;
    return record?.server_name === serverName ? [{ path, record, digest: sha256Tagged(text) }] : [];
  });

export const containmentRecordPath = (record: ContainmentRecord): string =>
  recordPath(CONTAINMENTS, record, record.act);

const Ending = z.union([ContainmentRecord, ReadmissionRecord]);

/** The server names of the partners whose containment is ended by the last of these records, made since a time, that contains or restores them. */
export function restoredBy(texts: Iterable<string>, sinceMs = 0): ReadonlySet<string> {
  const records = [...texts].flatMap((text) => Ending.safeParse(parseJson(text)).data ?? []);
  const acts = records.filter((one) => one.act !== "completed" && Date.parse(one.timestamp) >= sinceMs);
  acts.sort((left, right) => Date.parse(left.timestamp) - Date.parse(right.timestamp));
  const last = new Map(acts.map(({ server_name, act }) => [server_name, act]));
  return new Set([...last.keys()].filter((name) => last.get(name) !== "contain"));
}
