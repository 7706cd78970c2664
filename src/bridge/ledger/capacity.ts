// How much may be open at a time, in the deployment and in each share of it; the place of what is new, or why it is refused.
// Invariants: an agent that never accepts, or one server's users, fill their own share only, and leave each other agent its
// reserve, with which no more than twice the share is open; what awaits a key takes nothing from delegations; two transactions
// at once may exceed a limit other than the room's by what each brings; a refusal takes no place; one event takes one place.
import { type EventId, type RoomId, serverOf } from "../../domain/identifiers.ts";
import type { Capacity, Derived, NewAnswer, NewDelegation, NewIntakeEnvelope } from "./admission-types.ts";
import { columnsOf, type Queryable, type Statement, statement } from "./postgres.ts";
import type { INTAKE_ENVELOPE_REASONS, TerminalReason, TerminalStage } from "./states.ts";

/** The facts that placing needs, as the database returns them. */
export interface KnownPlaces {
  /** Room, encrypted, open delegations, next place. */
  readonly rooms: readonly (readonly [RoomId, boolean, number, number])[] | undefined;
}

/** What is open before an admission, by share; of the share "" everything is. */
export type OpenCounts = ReadonlyMap<string, number>;
type EnvelopeDenial = (typeof INTAKE_ENVELOPE_REASONS.denied)[number];

const withReserves = (most: number) => 2 * most;
const pairShare = (agent: string, server: string) => `pair ${server} ${agent}`;
export const queueShare = (room: string) => `queue ${room}`;

// Nothing is counted further than it may go, so that the cost does not depend on how much is open; of a pair, the open
// rows of its agent are read. What was counted to its end becomes the upper bound of all that is open; where one server has
// that much, all of it is not counted.
const COUNT_OPEN = statement("count_open")`
  WITH servers AS MATERIALIZED (
    SELECT server, (SELECT count(*)::int FROM (
      SELECT FROM bridge_delegations WHERE bridge_if_open(terminal_at, bridge_server_of(sender_mxid)) = server LIMIT $5) one) AS open
    FROM unnest($4::text[]) server
  ), counted AS MATERIALIZED (
    SELECT CASE WHEN (SELECT max(open) FROM servers) >= $1 THEN $1 ELSE (
      SELECT count(*)::int FROM (SELECT FROM bridge_delegations WHERE terminal_at IS NULL LIMIT $1) one) END AS open,
      (SELECT admitted FROM bridge_capacity) AS at_admitted
  ), bound AS (
    UPDATE bridge_capacity SET counted_open = open, counted_at_admitted = at_admitted FROM counted WHERE open < $1
  )
  SELECT '' AS share, open FROM counted WHERE open < $1
  UNION ALL SELECT 'agent ' || agent, (SELECT count(*)::int FROM (
    SELECT FROM bridge_delegations WHERE bridge_if_open(terminal_at, agent_id) = agent LIMIT $3) one)
  FROM unnest($2::text[]) agent
  UNION ALL SELECT 'server ' || server, open FROM servers
  UNION ALL SELECT 'pair ' || server || ' ' || agent, (SELECT count(*)::int FROM (
    SELECT FROM bridge_delegations
    WHERE bridge_if_open(terminal_at, agent_id) = agent AND bridge_server_of(sender_mxid) = server LIMIT $8) one)
  FROM unnest($6::text[], $7::text[]) AS pair (server, agent)`;

const COUNT_AWAITING = statement("count_awaiting")`
  SELECT 'room ' || room_id AS share, count(*)::int AS open FROM bridge_encrypted_intake
  WHERE state = 'awaiting_key' AND room_id = ANY ($1) GROUP BY 1
  UNION ALL SELECT 'sender ' || sender_mxid, count(*)::int FROM bridge_encrypted_intake
  WHERE state = 'awaiting_key' AND sender_mxid = ANY ($2) GROUP BY 1
  UNION ALL SELECT 'awaiting ' || bridge_server_of(sender_mxid), count(*)::int FROM bridge_encrypted_intake
  WHERE state = 'awaiting_key' AND bridge_server_of(sender_mxid) = ANY ($3) GROUP BY 1
  UNION ALL SELECT 'awaiting', count(*)::int FROM bridge_encrypted_intake WHERE state = 'awaiting_key'`;

/** Counts as far as a limit; agents and servers only when what is open, by its upper bound in `known`, might exceed a share. */
export async function countOpen(
  on: Queryable,
  { rooms: known, open_global_max: most }: KnownPlaces & { readonly open_global_max: number },
  { delegations, envelopes }: Pick<Derived, "delegations" | "envelopes">,
  { globalQueue, agentQueue, serverQueue, agentReserve = 0 }: Capacity,
): Promise<OpenCounts> {
  const counts = new Map([["", most]]);
  for (const [room, , open] of known ?? []) counts.set(queueShare(room), open);
  const count = async (counting: Statement, values: readonly unknown[]) => {
    const counted = await counting.rows(on, values);
    for (const { share, open } of counted) counts.set(share, open);
  };
  if (envelopes.length > 0) {
    const servers = envelopes.map(({ sender }) => serverOf(sender));
    await count(COUNT_AWAITING, [...columnsOf(envelopes, "room", "sender"), servers]);
  }
  const least = Math.min(globalQueue, serverQueue ?? Infinity, agentQueue ?? Infinity);
  const after = most + delegations.length;
  if (delegations.length === 0 || after <= least) return counts;
  const asked = delegations
    .filter(({ refused }) => refused === undefined)
    .map((one) => ({ server: serverOf(one.sender), agent: one.agent }));
  const pairs = [...new Map(asked.map((one) => [pairShare(one.agent, one.server), one])).values()];
  await count(COUNT_OPEN, [
    after > globalQueue ? withReserves(globalQueue) : least,
    [...new Set(pairs.map((one) => one.agent))],
    Math.max(agentQueue ?? 0, agentReserve),
    [...new Set(pairs.map((one) => one.server))],
    withReserves(serverQueue ?? 0),
    ...columnsOf(pairs, "server", "agent"),
    agentReserve,
  ]);
  return counts;
}

function slotsOf(before: OpenCounts, most: Capacity) {
  const open = new Map(before);
  const openIn = (share: string) => open.get(share) ?? 0;

  /** The limit of a larger share, for what is open of an agent, or of a server, in it. */
  const limitFor = (ofOne: string, limit: number | undefined, reserve = most.agentReserve ?? 0) => {
    const isReserved = openIn(ofOne) < reserve;
    return isReserved && limit !== undefined ? withReserves(limit) : limit;
  };

  /** Takes one of each share, or of none where one of them is full. */
  const take = <Reason>(shares: readonly (readonly [Reason, string, number | undefined])[]) => {
    const full = shares.find(([, share, limit = Infinity]) => openIn(share) >= limit);
    if (full !== undefined) return full[0];
    for (const [, share] of shares) open.set(share, openIn(share) + 1);
    return null;
  };

  return {
    take({ room, agent, sender }: NewDelegation): TerminalReason | null {
      const server = serverOf(sender);
      const [ofAgent, ofPair] = [`agent ${agent}`, pairShare(agent, server)];
      return take([
        ["room_capacity_exceeded", queueShare(room), most.roomQueue],
        ["agent_capacity_exceeded", ofAgent, most.agentQueue],
        ["server_capacity_exceeded", `server ${server}`, limitFor(ofPair, most.serverQueue)],
        ["server_capacity_exceeded", ofPair, undefined],
        ["global_capacity_exceeded", "", limitFor(ofAgent, most.globalQueue)],
      ]);
    },

    takeEnvelope({ room, sender }: NewIntakeEnvelope): EnvelopeDenial | null {
      const ofServer = `awaiting ${serverOf(sender)}`;
      // Servers that fill all of it leave each other one what one of its users may have.
      const ofAll = limitFor(ofServer, most.globalEnvelopes, most.senderEnvelopes);
      return take([
        ["sender_envelopes_exceeded", `sender ${sender}`, most.senderEnvelopes],
        ["room_envelopes_exceeded", `room ${room}`, most.roomEnvelopes],
        ["server_envelopes_exceeded", ofServer, most.serverEnvelopes],
        ["global_envelopes_exceeded", "awaiting", ofAll],
      ]);
    },
  };
}

/** Which event each message index of these and of earlier events belongs to, by the digest in base64. */
export type KnownIndices = ReadonlyMap<string, EventId>;

export function isFirstUse(
  indices: KnownIndices,
  { indexDigest, event }: Pick<NewAnswer, "indexDigest" | "event">,
): boolean {
  const user = indexDigest && indices.get(indexKey(indexDigest));
  return user === undefined || user === event;
}

export const indexKey = (digest: Buffer): string => digest.toString("base64");

export interface PlacedJob extends NewDelegation {
  seq: number | null;
  ordinal: number | null;
  siblings: number | null;
  readonly denied: TerminalReason | null;
}

/** Of what is denied as it comes, this reason belongs to the stage `policy`, and every other one to `intake`. */
const DENIED_BY_POLICY = "sender_policy_rejected" satisfies TerminalReason;

/** SQL: the stage at which a row with the reason in the column `denied` ended. */
export const STAGE_OF_DENIED = `CASE WHEN denied = '${DENIED_BY_POLICY}' THEN 'policy' WHEN denied IS NOT NULL THEN 'intake' END`;

export const stageOfDenied = (reason: TerminalReason): TerminalStage =>
  reason === DENIED_BY_POLICY ? "policy" : "intake";

export const refusedOf = (jobs: readonly PlacedJob[]) => jobs.flatMap(({ denied }) => denied ?? []);

export interface PlacedIntakeEnvelope extends NewIntakeEnvelope {
  readonly seq: number | null;
  readonly denied: EnvelopeDenial | null;
}

export interface Placed {
  readonly jobs: readonly PlacedJob[];
  readonly envelopes: readonly PlacedIntakeEnvelope[];
}

/** Answers that may follow each other in an exchange in which nobody pauses. */
const AGENT_TURNS_MAX = 3;

function refusalOf(job: NewDelegation, indices: KnownIndices): TerminalReason | undefined {
  if (!isFirstUse(indices, job)) return "event_replayed";
  if (job.refused !== undefined) return job.refused;
  return job.agentTurn > AGENT_TURNS_MAX ? "agent_turns_exceeded" : undefined;
}

export function place(
  { delegations, envelopes }: Pick<Derived, "delegations" | "envelopes">,
  known: KnownPlaces,
  indices: KnownIndices,
  open: OpenCounts,
  capacity: Capacity,
): Placed {
  const slots = slotsOf(open, capacity);
  const next = new Map((known.rooms ?? []).map(([room, , , seq]) => [room, seq]));
  const takePlace = (room: RoomId) => {
    const seq = next.get(room) ?? 1;
    next.set(room, seq + 1);
    return seq;
  };
  const jobs: PlacedJob[] = [];
  const placedEnvelopes: PlacedIntakeEnvelope[] = [];
  const siblingsOf = new Map<EventId, PlacedJob[]>();
  const arrived = [...delegations, ...envelopes].sort((left, right) => left.position - right.position);
  for (const one of arrived) {
    if (!("ghost" in one)) {
      const denied = slots.takeEnvelope(one);
      placedEnvelopes.push({ ...one, seq: denied === null ? takePlace(one.room) : null, denied });
      continue;
    }
    const denied = refusalOf(one, indices) ?? slots.take(one);
    const siblings = siblingsOf.get(one.event) ?? [];
    siblingsOf.set(one.event, siblings);
    const job: PlacedJob = { ...one, seq: null, ordinal: null, siblings: null, denied };
    jobs.push(job);
    if (denied !== null) continue;
    job.seq = siblings[0]?.seq ?? takePlace(one.room);
    job.ordinal = siblings.length;
    siblings.push(job);
    for (const sibling of siblings) sibling.siblings = siblings.length;
  }
  return { jobs, envelopes: placedEnvelopes };
}

/** By room. `gate`: which of the places is the first one of an intake envelope, counted from 1. */
export function roomTotals({ jobs, envelopes }: Placed) {
  return [...Map.groupBy([...jobs, ...envelopes], ({ room }) => room)].map(([room, all]) => {
    const placed = all.flatMap((one) => (one.seq === null ? [] : { seq: one.seq, isJob: "ghost" in one }));
    const places = new Set(placed.map(({ seq }) => seq));
    const gate = placed.find(({ isJob }) => !isJob);
    return {
      room,
      places: places.size,
      slots: placed.filter(({ isJob }) => isJob).length,
      gate: gate === undefined ? null : 1 + gate.seq - Math.min(...places),
    };
  });
}
