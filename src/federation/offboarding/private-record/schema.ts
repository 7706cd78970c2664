// The private offboarding record: who answers for one removal, why it is done, what it touches, what is owed.
// The file lies outside version control. Invariants: unknown keys are refused; whoever is named is named by role or
// staff number; no field can hold a credential, a key, what was said in a room, or how to reach a person.
// Published as docs/reference/schemas/offboarding-private-record.schema.json.
import { Document } from "yaml";
import * as z from "zod";
import { parseDurationMs } from "../../../domain/duration.ts";
import { AgentName, ServerNameField } from "../../../domain/identifier-fields.ts";
import { parseRoomId } from "../../../domain/identifiers.ts";
import { Day, Identifier, RunId, Word } from "../../../records/format/fields.ts";
import { KINDS, TRIGGERS } from "../../../records/format/removal-stages.ts";
import { AbsolutePath, ClientId } from "../../../rendered-files/gateway-files.ts";

const Room = z.string().refine((value) => parseRoomId(value) !== undefined, { error: "must be a room ID" });
const Instant = z.iso.datetime({ error: "must be a time in UTC, such as 2026-01-31T03:00:00Z" });
const ITEMS_MAX = 10_000;
/** Statements have it with a prefix (`owner:`), in a word of 128 characters. */
const Owner = Word.refine((value) => value.length <= 120, { error: "must be 120 characters at most" });

/** What becomes of a room's history here: all of it and the room, other servers' events, or nothing. */
export const RoomPurge = z.enum(["room", "history", "keep"]);

/** Each field's description says what stands there; templates and `show` print it. */
export const PrivateRecord = z.strictObject({
  version: z.literal(1),
  partner: z.strictObject({
    legalEntity: z.string().min(2).max(200).describe("registered name of the partner's legal entity"),
    serverName: ServerNameField.describe("its server name"),
  }),
  /** Classified before anything is touched; fixed once the run is open. */
  revocation: z.strictObject({
    kind: z.enum(KINDS).describe("full, partial or emergency"),
    trigger: z.enum(TRIGGERS).describe("planned_departure, contract_end or suspected_compromise"),
  }),
  security: z.strictObject({
    incidentOwner: Word.describe("role that owns security or the incident"),
    containmentAuthority: Word.describe("role that may order containment"),
  }),
  technical: z.strictObject({
    owner: Word.describe("role that carries the removal out"),
    rollbackOwner: Word.describe("role that would roll it back"),
  }),
  change: z.strictObject({
    reference: Identifier.describe("change ticket or pull request"),
    rollback: Identifier.describe("reference to the rollback plan"),
  }),
  affected: z.strictObject({
    rooms: z.array(Room).max(ITEMS_MAX).describe("room IDs; [] for none"),
    routes: z.array(AbsolutePath).max(ITEMS_MAX).describe("public paths at the gateway; [] for none"),
    agents: z.array(AgentName).max(ITEMS_MAX).describe("agents by name; [] for none"),
    oidcClient: ClientId.describe("the partner's client here, or none"),
  }),
  maintenance: z.strictObject({
    from: Instant.describe("2026-01-31T03:00:00Z"),
    until: Instant.describe("2026-01-31T05:00:00Z"),
    expectedInterruption: z
      .string()
      .refine((value) => parseDurationMs(value) !== undefined, { error: "must be a duration, such as 30s" })
      .describe("of others, such as 30s"),
  }),
  duties: z.strictObject({
    retention: z.strictObject({
      state: z.enum(["ended", "kept"]).describe("ended, or kept until a day"),
      until: Day.nullish().describe("the day, where copies are kept"),
    }),
    purge: z.strictObject({
      remoteMedia: z.enum(["purge", "keep"]).describe("purge or keep cached copies of its files"),
      /** Quarantined files stay unless they are released first. */
      quarantinedMedia: z.enum(["purge", "keep"]).describe("purge or keep those in quarantine"),
      rooms: z
        .array(z.strictObject({ room: Room, how: RoomPurge }))
        .max(ITEMS_MAX)
        .describe("{room, how} each: room (all), history (others' events), keep; [] for none"),
      waiver: Word.nullish().describe("why nothing is purged, as a code, where nothing is"),
    }),
    backups: z.strictObject({
      owner: Word.describe("role that attests that backups expire"),
      expireBy: Day.describe("the day by which they do, such as 2027-01-31"),
    }),
  }),
  attestation: z.strictObject({
    own: Owner.describe("role that attests the completion here"),
    partner: Owner.describe("role that attests it at the partner"),
  }),
  readmission: z.strictObject({
    possible: z.boolean().describe("true or false"),
    owner: Word.describe("role that would decide it, where it is possible").nullish(),
    conditions: z.array(Word).max(256).describe("codes, such as new_contract; [] where it is not possible"),
  }),
  run: RunId.nullish(),
});
export type PrivateRecord = z.output<typeof PrivateRecord>;

type RecordField = Readonly<{ path: string; says: string; isOptional: boolean }>;
export const RECORD_FIELDS: readonly RecordField[] = fieldsOf(PrivateRecord, "");

function fieldsOf(schema: z.ZodObject, prefix: string): readonly RecordField[] {
  return Object.entries(schema.shape).flatMap(([name, field]): readonly RecordField[] => {
    if (field instanceof z.ZodObject) return fieldsOf(field, `${prefix}${name}.`);
    let inner: unknown = field;
    while (inner instanceof z.ZodOptional || inner instanceof z.ZodNullable) inner = inner.unwrap();
    const value = inner as z.ZodType;
    const says = (field as z.ZodType).description ?? value.description;
    if (says === undefined) return [];
    return [{ path: `${prefix}${name}`, says, isOptional: value !== field }];
  });
}

export type KnownValues = ReadonlyMap<string, string | readonly string[]>;

/** The text of a new record; a field that is not known stays open, and a comment says what belongs there. */
export function renderTemplate(known: KnownValues): string {
  const document = new Document({ version: 1 });
  document.commentBefore = [
    " Private offboarding record. Keep it outside version control, readable by its owner alone.",
    " Name roles or staff numbers; no names, addresses, secrets, and nothing that was said in a room.",
  ].join("\n");
  for (const { path, says, isOptional } of RECORD_FIELDS) {
    const node = document.createNode(known.get(path) ?? null, { flow: true });
    if (!known.has(path)) node.comment = ` ${isOptional ? "optional" : "missing"}: ${says}`;
    document.setIn(path.split("."), node);
  }
  return document.toString({ lineWidth: 0 });
}
