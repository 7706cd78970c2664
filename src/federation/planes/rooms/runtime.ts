// Plane 2 on a homeserver: finds the rooms, brings each to the intent, and says of one partner what the rooms' state is
// and what is enforced, at home and elsewhere. What is closed and how it is taken back: docs/reference/rooms-plane.md.
import { matrixCanonicalJson } from "../../../domain/canonical-json.ts";
import type { Clock } from "../../../domain/clock.ts";
import { sha256Tagged } from "../../../domain/digest.ts";
import type { DrawbridgeError } from "../../../domain/errors.ts";
import { type RoomId, roomOfVisibleId, type ServerName, visibleId } from "../../../domain/identifiers.ts";
import { type EvidenceItemBody, operatorItem } from "../../../records/format/evidence-item.ts";
import { mapConcurrent } from "../../../runtime/concurrency.ts";
import type { FederationConfig } from "../../config.ts";
import { type Drift, OUT_OF_REACH, outcomeOf, type PlaneRuntime } from "../plane.ts";
import { deniedByEnforcement } from "./acl.ts";
import { mustBeProven, retainedServers, showsAcl, staleAtHome } from "./acl-enforcement.ts";
import { closeRooms } from "./close-rooms.ts";
import { isOurs, planRoom, type RoomStep } from "./plan-room-steps.ts";
import { markRemoved, reopenRooms } from "./reopen-rooms.ts";
import { isFederated, joinedByServer, presentOf, type RoomState } from "./room-state.ts";
import { listRooms, ROOMS_AT_ONCE, type RoomsSession, readRoom, whyFailed, withSession } from "./session.ts";
import { damagedJournals, recordOf } from "./undo-journal.ts";

export function roomsRuntime(config: FederationConfig, clock: Clock): PlaneRuntime {
  const quiet = { clock, note: () => undefined, writes: false } as const;
  const cursor: DriftCursor = {};
  return {
    apply: (desired, note) =>
      withSession(config, desired, { clock, note, writes: true }, async (session) => {
        const closed = await closeRooms(session);
        await markRemoved(session);
        const damaged = { changed: false, outOfReach: damagedJournals(session) };
        return outcomeOf([closed, damaged, await reopenRooms(session)]);
      }),
    drift: (desired) => withSession(config, desired, quiet, (session) => roomsDrift(session, cursor)),
    probe: (desired, { partner: { serverName } }, covering) =>
      withSession(config, desired, quiet, (rooms) => roomEvidence(rooms, serverName as ServerName, covering)),
  };
}

const KINDS: Readonly<Record<RoomStep["kind"], string>> = {
  raise_invite: "invite_level",
  ban: "partner_present",
  set_acl: "acl",
  read_only: "writable",
};

/** One drift check takes about this long at most, milliseconds, because a containment may be waiting for it. */
const CHECK_MAX_MS = 5_000;

export interface DriftCursor {
  after?: RoomId | undefined;
  /** The intent that the rooms were compared with; another one is compared from the beginning. */
  intent?: string;
}

/** Rooms that are not as they should be, or are enforced otherwise than their state says. @param cursor is moved on */
export async function roomsDrift(session: RoomsSession, cursor: DriftCursor): Promise<readonly Drift[]> {
  const { clock } = session;
  const partners = session.intent.closing.map(({ serverName }) => serverName as ServerName);
  const sorted = [...(await listRooms(session, partners))].sort();
  const nothing = (subject: string, kind: string): Drift => ({ subject, kind, found: null });
  const stale = (await staleAtHome(session, sorted)).map((room) => nothing(visibleId(room), "enforcement"));
  const intent = JSON.stringify(session.intent);
  const after = cursor.intent === intent ? cursor.after : undefined;
  cursor.intent = intent;
  const isReached = (room: RoomId) => after !== undefined && room <= after;
  const inTurn = [...sorted.filter((room) => !isReached(room)), ...sorted.filter(isReached)];
  const deadline = clock.now() + CHECK_MAX_MS;
  let failure: DrawbridgeError | undefined;
  const found = await mapConcurrent(inTurn, ROOMS_AT_ONCE, async (room) => {
    if (clock.now() >= deadline) return [];
    cursor.after = room; // Rooms begin in order, so this is the last.
    const state = await readRoom(session, room, CHECK_MAX_MS).catch(async (error: unknown) => {
      failure = await whyFailed(session, error);
      return undefined;
    });
    if (state === undefined || !joinedByServer(state).has(session.intent.own)) return [];
    const { steps, obstacles } = planRoom(session, state);
    const subject = visibleId(room);
    if (steps.length === 0 && obstacles.length > 0) return [nothing(subject, OUT_OF_REACH)];
    const kinds = [...new Set(steps.map(({ kind }) => kind))];
    return kinds.map((kind): Drift => ({ subject, kind: KINDS[kind], found: digestOf(state, kind) }));
  });
  const damaged = damagedJournals(session).map(({ subject }) => nothing(subject, OUT_OF_REACH));
  const drift = [...stale, ...damaged, ...found.flat()];
  // What is known is reported also when one room cannot be read.
  if (drift.length === 0 && failure !== undefined) throw failure;
  return drift;
}

function digestOf(state: RoomState, kind: RoomStep["kind"]): string | null {
  const content = kind === "set_acl" ? state.acl?.content : kind === "ban" ? undefined : state.power.content;
  return content === undefined ? null : sha256Tagged(matrixCanonicalJson(content));
}

const RETAINED_TIMEOUT_MS = 5_000;

type Found = Pick<EvidenceItemBody, "probe" | "verdict" | "layer"> & Partial<EvidenceItemBody>;

/** Rooms of ours that are federated, the partner's present and former ones, and `covering`, with which a removal began. */
export async function roomEvidence(session: RoomsSession, partner: ServerName, covering?: readonly string[]) {
  const journal = session.journals.get(partner);
  // Rooms that only a line says which cannot be read would be missing.
  if (journal?.damage !== undefined) throw journal.damage;
  const records = journal?.rooms ?? [];
  const listed = await listRooms(session, [partner]);
  // One with a long ID is named by a digest, by which it can only be found among those that are known.
  const covered = new Set(covering);
  const named = covering?.flatMap((room) => roomOfVisibleId(room) ?? []) ?? [];
  const rooms = [...new Set([...listed, ...records.map(({ room }) => room), ...named])];
  const items = await mapConcurrent(rooms, ROOMS_AT_ONCE, async (room) => {
    const startedAt = session.clock.now();
    const finding = findings(session, partner, room, covered.has(visibleId(room)));
    const found = await finding.catch(async (error: unknown) => unread(await whyFailed(session, error)));
    return found.map((one) =>
      operatorItem(startedAt, {
        ...{ plane: "rooms", partner, subject: visibleId(room), status: 200 },
        duration_ms: session.clock.now() - startedAt,
        ...one,
        references: (one.references ?? []).map(visibleId),
      }),
    );
  });
  const found = items.flat();
  if (found.length > 0) return found;
  const none = { probe: "rooms_shared", verdict: "closed", reason: "no_room_in_scope" } as const;
  return [operatorItem(session.clock.now(), { plane: "rooms", partner, layer: "homeserver", ...none })];
}

function unread({ code }: DrawbridgeError): readonly Found[] {
  const about = { verdict: "unknown", layer: "homeserver", status: null, reason: code } as const;
  return ["room_acl", "room_enforcement", "room_members"].map((probe) => ({ probe, ...about }));
}

type Items = Promise<readonly Found[]>;

async function findings(session: RoomsSession, partner: ServerName, room: RoomId, isCovered: boolean): Items {
  const { own } = session.intent;
  const state = await readRoom(session, room);
  const record = recordOf(session, partner, room);
  if (state === undefined || !joinedByServer(state).has(own)) {
    const reason = record?.gone?.how ?? (isCovered ? "left" : undefined);
    if (reason === undefined) return [];
    const references = record?.replacement === undefined ? [] : [record.replacement.to];
    return [{ probe: "room_left", verdict: "closed", layer: "homeserver", reason, references }];
  }
  const { acl, unreadable } = state;
  const present = presentOf(state, partner).length;
  const isGoverned = isOurs(state, own) && isFederated(state, own);
  if (present === 0 && record === undefined && !isGoverned) return [];
  const isUnclear = present === 0 && unreadable.length > 0;
  return [
    {
      ...{ probe: "room_members", layer: "homeserver" },
      verdict: isUnclear ? "unknown" : present === 0 ? "closed" : "open",
      reason: isUnclear ? "unreadable_member" : null,
      references: [`present=${present}`],
    },
    {
      ...{ probe: "room_acl", layer: "room_acl" },
      verdict: acl !== undefined && deniedByEnforcement(acl.content, partner) ? "closed" : "open",
      references: acl === undefined ? [] : [acl.eventId],
    },
    await homeFinding(session, state, partner),
    // An ACL of others that lets the partner in is not ours to prove; the room's owner may have put us out.
    ...(mustBeProven(state, [{ serverName: partner }], isGoverned || record !== undefined)
      ? await retainedFindings(session, state, partner)
      : []),
  ];
}

async function homeFinding(session: RoomsSession, state: RoomState, partner: ServerName): Promise<Found> {
  const about = { probe: "room_enforcement", layer: "homeserver" } as const;
  const observed = await session.home.enforcement(state.roomId, partner).catch(() => undefined);
  if (observed === undefined)
    return { ...about, verdict: "unknown", status: null, reason: "unproven_at_home" };
  return {
    ...about,
    verdict: observed.allowed ? "open" : "closed",
    reason: observed.enforces_state ? null : "stale_at_home",
    references: observed.state_event_id === null ? [] : [observed.state_event_id],
  };
}

async function retainedFindings(session: RoomsSession, state: RoomState, partner: ServerName) {
  const { acl } = state;
  if (acl === undefined) return [];
  const isDenied = deniedByEnforcement(acl.content, partner);
  const servers = retainedServers(session, state).filter((server) => server !== partner);
  const asking = servers.map(async (server): Promise<Found> => {
    const isShown = await showsAcl(session, server, acl.eventId, RETAINED_TIMEOUT_MS);
    const at = { probe: "room_acl_at_retained", vantage: "retained_server", layer: "room_acl" } as const;
    const about = { ...at, references: [acl.eventId, server] };
    if (isShown) return { ...about, verdict: isDenied ? "closed" : "open" };
    return { ...about, verdict: "unknown", status: null, reason: "unproven_at_retained" };
  });
  return Promise.all(asking);
}
