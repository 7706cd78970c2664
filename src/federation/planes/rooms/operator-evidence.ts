// Operator evidence of one partner's rooms: what the state says, what is enforced, at home and elsewhere, and how many
// of its users are left.
import { roomOfVisibleId, type ServerName, visibleId } from "../../../domain/identifiers.ts";
import {
  type EvidenceItem,
  type EvidenceItemBody,
  operatorItem,
} from "../../../records/format/evidence-item.ts";
import { mapConcurrent } from "../../../runtime/concurrency.ts";
import { deniedByEnforcement } from "./acl.ts";
import { hasEvent, mustBeProven, retainedServers } from "./acl-enforcement.ts";
import { isOurs } from "./room-plan.ts";
import { isFederated, joinedByServer, presentOf, type RoomState } from "./room-state.ts";
import { listRooms, ROOMS_AT_ONCE, type RoomsSession, readRoom, recordOf } from "./session.ts";
import type { RoomRecord } from "./undo-journal.ts";

const RETAINED_TIMEOUT_MS = 5_000;

type Found = Pick<EvidenceItemBody, "probe" | "verdict" | "layer"> & Partial<EvidenceItemBody>;

/** Rooms of ours that are federated, the partner's present and former ones, and `covering`, with which a removal began. */
export async function roomsEvidence(
  session: RoomsSession,
  partner: ServerName,
  covering: readonly string[] = [],
): Promise<readonly EvidenceItem[]> {
  const records = session.journals.get(partner)?.rooms ?? [];
  const listed = await listRooms(session, [partner]);
  const covered = new Set(covering.flatMap((room) => roomOfVisibleId(room) ?? []));
  const rooms = [...new Set([...listed, ...records.map(({ room }) => room), ...covered])];
  const items = await mapConcurrent(rooms, ROOMS_AT_ONCE, async (room) => {
    const startedAt = session.clock.now();
    const state = await readRoom(session, room);
    const record = recordOf(session, partner, room);
    const found = await roomFindings(session, partner, state, record, covered.has(room));
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

async function roomFindings(
  session: RoomsSession,
  partner: ServerName,
  state: RoomState | undefined,
  record: RoomRecord | undefined,
  isCovered: boolean,
): Promise<readonly Found[]> {
  const { own } = session.intent;
  const isLeft = state === undefined || !joinedByServer(state).has(own);
  if (isLeft) {
    const reason = record?.gone?.how ?? (isCovered ? "left" : undefined);
    if (reason === undefined) return [];
    const references = record?.replacement === undefined ? [] : [record.replacement.to];
    return [{ probe: "room_left", verdict: "closed", layer: "homeserver", reason, references }];
  }
  const isPresent = presentOf(state, partner).length > 0;
  const isGoverned = isOurs(state, own) && isFederated(state, own);
  if (!isPresent && record === undefined && !isGoverned) return [];
  return [
    membersFinding(state, partner),
    aclFinding(state, partner),
    await homeFinding(session, state, partner),
    // An ACL of others that lets the partner in is not ours to prove; the room's owner may have put us out.
    ...(mustBeProven(state, [{ serverName: partner }], isGoverned || record !== undefined)
      ? await retainedFindings(session, state, partner)
      : []),
  ];
}

function membersFinding(state: RoomState, partner: ServerName): Found {
  const count = presentOf(state, partner).length;
  const isUnclear = count === 0 && state.unreadable.length > 0;
  return {
    probe: "room_members",
    verdict: isUnclear ? "unknown" : count === 0 ? "closed" : "open",
    layer: "homeserver",
    reason: isUnclear ? "unreadable_member" : null,
    references: [`present=${count}`],
  };
}

function aclFinding(state: RoomState, partner: ServerName): Found {
  const isDenied = state.acl !== undefined && deniedByEnforcement(state.acl.content, partner);
  return {
    probe: "room_acl",
    verdict: isDenied ? "closed" : "open",
    layer: "room_acl",
    references: state.acl === undefined ? [] : [state.acl.eventId],
  };
}

async function homeFinding(session: RoomsSession, state: RoomState, partner: ServerName): Promise<Found> {
  const about = { probe: "room_enforcement", layer: "homeserver" } as const;
  const observed = await session.home.enforcement(state.roomId, partner).catch(() => undefined);
  if (observed === undefined) {
    return { ...about, verdict: "unknown", status: null, reason: "unproven_at_home" };
  }
  return {
    ...about,
    verdict: observed.allowed ? "open" : "closed",
    reason: observed.enforces_state ? null : "stale_at_home",
    references: observed.state_event_id === null ? [] : [observed.state_event_id],
  };
}

async function retainedFindings(
  session: RoomsSession,
  state: RoomState,
  partner: ServerName,
): Promise<readonly Found[]> {
  const { acl } = state;
  if (acl === undefined) return [];
  const isDenied = deniedByEnforcement(acl.content, partner);
  const servers = retainedServers(session, state).filter((server) => server !== partner);
  return Promise.all(
    servers.map(async (server): Promise<Found> => {
      const isThere = await hasEvent(session, server, acl.eventId, RETAINED_TIMEOUT_MS);
      return {
        probe: "room_acl_at_retained",
        vantage: "retained_server",
        layer: "room_acl",
        verdict: isThere ? (isDenied ? "closed" : "open") : "unknown",
        status: isThere ? 200 : null,
        reason: isThere ? null : "unproven_at_retained",
        references: [acl.eventId, server],
      };
    }),
  );
}
