// svc.federation.containment.v1: one record an act, committed with the act. Invariants: content-free; every
// field is an identifier, a revision or a time; the file's name says when, whom and what.
// Published as docs/reference/schemas/svc.federation.containment.v1.schema.json.
import * as z from "zod";
import { GitRevision, Identifier, Instant } from "../../records/format/fields.ts";
import { Partner } from "../registry/partner.ts";
import { recordPath } from "../registry/readmission-record.ts";

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

export function containmentRecordPath(record: ContainmentRecord): string {
  return recordPath(CONTAINMENTS, record, record.act);
}
