// The private offboarding record: who answers for one removal, why it is done, what it touches, what is owed.
// It lies outside version control. Invariants: unknown keys are refused; whoever is named is named by role or
// staff number; no field can hold a credential, a key, what was said in a room, or how to reach a person.
// Published as docs/reference/schemas/offboarding-private-record.schema.json.
import { z } from "zod";
import { parseDurationMs } from "../../../domain/duration.ts";
import { parseRoomId } from "../../../domain/identifiers.ts";
import { Day, Identifier, RunId, Word } from "../../../records/format/fields.ts";
import { KINDS, TRIGGERS } from "../../../records/format/stages.ts";
import { AbsolutePath, ClientId } from "../../../rendered-files/fields.ts";
import { AgentName, ServerNameField } from "../../registry/organisation.ts";

const Room = z.string().refine((value) => parseRoomId(value) !== undefined, { error: "must be a room ID" });
const Instant = z.iso.datetime({ error: "must be a time in UTC, such as 2026-01-31T03:00:00Z" });
const ITEMS_MAX = 10_000;
/** Statements have it with a prefix (`owner:`), in a word of 128 characters. */
const Owner = Word.refine((value) => value.length <= 120, { error: "must be 120 characters at most" });

/** What becomes of a room's history here: all of it and the room, other servers' events, or nothing. */
export const RoomPurge = z.enum(["room", "history", "keep"]);
export type RoomPurge = z.output<typeof RoomPurge>;

export const PrivateRecord = z.strictObject({
  version: z.literal(1),
  /** The partner's legal entity and server name. */
  partner: z.strictObject({
    legalEntity: z.string().min(2).max(200),
    serverName: ServerNameField,
  }),
  /** Classified before anything is touched; fixed once the run is open. */
  revocation: z.strictObject({ kind: z.enum(KINDS), trigger: z.enum(TRIGGERS) }),
  /** Security or incident owner, and who may order containment. */
  security: z.strictObject({ incidentOwner: Word, containmentAuthority: Word }),
  technical: z.strictObject({ owner: Word, rollbackOwner: Word }),
  change: z.strictObject({
    /** The change ticket or pull request. */
    reference: Identifier,
    /** Where it says how this would be rolled back. */
    rollback: Identifier,
  }),
  /** What the removal touches; an empty list says that there is none. */
  affected: z.strictObject({
    rooms: z.array(Room).max(ITEMS_MAX),
    routes: z.array(AbsolutePath).max(ITEMS_MAX),
    agents: z.array(AgentName).max(ITEMS_MAX),
    /** `none`: the partner has no client here. */
    oidcClient: ClientId,
  }),
  maintenance: z.strictObject({
    from: Instant,
    until: Instant,
    /** Of others, such as `30s`. */
    expectedInterruption: z.string().refine((value) => parseDurationMs(value) !== undefined, {
      error: "must be a duration, such as 30s",
    }),
  }),
  /** Retained copies and deletion, as the contract says. */
  duties: z.strictObject({
    retention: z.strictObject({
      /** `ended`: nothing is kept any more; `kept`: copies are kept until that day. */
      state: z.enum(["ended", "kept"]),
      until: Day.nullish(),
    }),
    purge: z.strictObject({
      /** Cached copies of the partner's files. */
      remoteMedia: z.enum(["purge", "keep"]),
      /** Those that are quarantined, which stay unless they are released first. */
      quarantinedMedia: z.enum(["purge", "keep"]),
      rooms: z.array(z.strictObject({ room: Room, how: RoomPurge })).max(ITEMS_MAX),
      /** Why nothing at all is purged, as a code. */
      waiver: Word.nullish(),
    }),
    /** Who attests that backups expire, and by when. */
    backups: z.strictObject({ owner: Word, expireBy: Day }),
  }),
  /** Who attests the completion, in both organisations. */
  attestation: z.strictObject({ own: Owner, partner: Owner }),
  readmission: z.strictObject({
    possible: z.boolean(),
    owner: Word.nullish(),
    conditions: z.array(Word).max(256),
  }),
  /** Written by `offboarding open`. */
  run: RunId.nullish(),
});
export type PrivateRecord = z.output<typeof PrivateRecord>;
