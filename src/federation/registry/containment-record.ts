// svc.federation.containment.v1: that a partner was contained, or restored; and which records end a containment.
// Invariants: content-free; one record an act, committed with it; its file's name says when, whom and what.
// Published as docs/reference/schemas/svc.federation.containment.v1.schema.json.
import * as z from "zod";
import { sha256Tagged } from "../../domain/digest.ts";
import { parseJson } from "../../domain/json.ts";
import { GitRevision, Identifier, Instant } from "../../records/format/fields.ts";
import { Partner } from "./partner.ts";
import { ReadmissionRecord, recordPath } from "./readmission-record.ts";

export const Act = z.enum(["contain", "restore"]);
export type Act = z.output<typeof Act>;

export const ContainmentRecord = z.strictObject({
  schema: z.literal("svc.federation.containment.v1"),
  act: Act,
  server_name: Identifier,
  azp: Identifier,
  classification: Partner.shape.classification,
  /** The commit whose registry the re-render was made from, this act's change aside. */
  git_revision: GitRevision,
  timestamp: Instant,
  planes: z.tuple([z.literal("gateway"), z.literal("card"), z.literal("rooms"), z.literal("border")]),
});
export type ContainmentRecord = z.output<typeof ContainmentRecord>;

export const CONTAINMENTS = "records/containment";

export function containmentRecordsOf(serverName: string, texts: ReadonlyMap<string, string>) {
  return [...texts].flatMap(([path, text]) => {
    const record = ContainmentRecord.safeParse(parseJson(text)).data;
    return record?.server_name === serverName ? [{ path, record, digest: sha256Tagged(text) }] : [];
  });
}

export function containmentRecordPath(record: ContainmentRecord): string {
  return recordPath(CONTAINMENTS, record, record.act);
}

const Ending = z.union([ContainmentRecord, ReadmissionRecord]);

/** The server names of the partners whose containment is ended by the last of these records that contains or restores them. */
export function restoredBy(texts: readonly string[]): ReadonlySet<string> {
  const records = texts.flatMap((text) => Ending.safeParse(parseJson(text)).data ?? []);
  const acts = records.filter(({ act }) => act !== "completed");
  acts.sort((left, right) => Date.parse(left.timestamp) - Date.parse(right.timestamp));
  const last = new Map(acts.map(({ server_name, act }) => [server_name, act]));
  return new Set([...last.keys()].filter((name) => last.get(name) !== "contain"));
}
