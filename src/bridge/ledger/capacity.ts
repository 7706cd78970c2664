// Capacity: how much may be open at a time, in the deployment and in each share of it.
// Invariants: an agent that never accepts, or one server's users, fill their own share only; what awaits a key has limits
// of its own and takes nothing from delegations. Rooms are locked one by one, so that two transactions which run at once
// may together exceed a limit other than the room's by what each of them brings.
import { serverOf, type UserId } from "../../domain/identifiers.ts";
import type { Capacity, NewDelegation, NewIntakeEnvelope } from "./admission-types.ts";
import { oneRow, type Queryable, rows, type Statement } from "./postgres.ts";
import type { INTAKE_ENVELOPE_REASONS, TerminalReason } from "./states.ts";

/** What is open before an admission: by room, agent, server, and by the room and the sender of intake envelopes. */
export interface OpenCounts {
  readonly total: number;
  readonly rooms: ReadonlyMap<string, number>;
  readonly shares: ReadonlyMap<string, number>;
}

type EnvelopeDenial = (typeof INTAKE_ENVELOPE_REASONS.denied)[number];

const agentShare = (agent: string) => `agent ${agent}`;
const serverShare = (server: string) => `server ${server}`;
const roomShare = (room: string) => `room ${room}`;
const senderShare = (sender: string) => `sender ${sender}`;

// The upper bound of all that is open is set to what was counted.
const COUNT_OPEN: Statement = {
  name: "count_open",
  text: `
  WITH open AS (
    SELECT agent_id, substr(sender_mxid, strpos(sender_mxid, ':') + 1) AS server, count(*)::int AS open
    FROM bridge_delegations WHERE terminal_at IS NULL GROUP BY 1, 2
  ), counted AS (
    UPDATE bridge_capacity SET
      counted_open = COALESCE((SELECT sum(open) FROM open), 0), counted_at_admitted = admitted
  )
  SELECT COALESCE(json_agg(json_build_array(agent_id, server, open)), '[]') AS open FROM open`,
};

const COUNT_AWAITING: Statement = {
  name: "count_awaiting",
  text: `
  SELECT 'room ' || room_id AS share, count(*)::int AS open FROM bridge_encrypted_intake
  WHERE state = 'awaiting_key' AND room_id = ANY ($1) GROUP BY 1
  UNION ALL SELECT 'sender ' || sender_mxid, count(*)::int FROM bridge_encrypted_intake
  WHERE state = 'awaiting_key' AND sender_mxid = ANY ($2) GROUP BY 1`,
};

/**
 * Counts what is open. Agents and servers are counted only when what is open, with what is new, might exceed a share.
 * @param most an upper bound of what is open in all rooms
 */
export async function countOpen(
  on: Queryable,
  known: { readonly rooms: OpenCounts["rooms"]; readonly most: number },
  found: { readonly delegations: readonly NewDelegation[]; readonly envelopes: readonly NewIntakeEnvelope[] },
  capacity: Capacity,
): Promise<OpenCounts> {
  const shares = new Map<string, number>();
  const { envelopes } = found;
  if (envelopes.length > 0) {
    const values = [envelopes.map(({ room }) => room), envelopes.map(({ sender }) => sender)];
    const counted = await rows<{ share: string; open: number }>(on, COUNT_AWAITING, values);
    for (const { share, open } of counted) shares.set(share, open);
  }
  const least = Math.min(capacity.global, capacity.server ?? Infinity, capacity.agent ?? Infinity);
  if (known.most + found.delegations.length <= least)
    return { total: known.most, rooms: known.rooms, shares };
  const { open } = await oneRow<{ open: [string, string, number][] }>(on, COUNT_OPEN, []);
  let total = 0;
  for (const [agent, server, count] of open) {
    total += count;
    for (const share of [agentShare(agent), serverShare(server)]) {
      shares.set(share, (shares.get(share) ?? 0) + count);
    }
  }
  return { total, rooms: known.rooms, shares };
}

/** Slots while they are being assigned. */
export class Slots {
  readonly #capacity: Capacity;
  readonly #rooms: Map<string, number>;
  readonly #shares: Map<string, number>;
  #total: number;

  constructor(open: OpenCounts, capacity: Capacity) {
    this.#capacity = capacity;
    this.#rooms = new Map(open.rooms);
    this.#shares = new Map(open.shares);
    this.#total = open.total;
  }

  /** Takes a delegation's slot, or returns what is full. */
  take({ room, agent, sender }: NewDelegation): TerminalReason | null {
    const {
      room: perRoom,
      global,
      agent: perAgent = Infinity,
      server: perServer = Infinity,
    } = this.#capacity;
    const [ofAgent, ofServer] = [agentShare(agent), serverShare(serverOf(sender as UserId))];
    if (this.#in(this.#rooms, room) >= perRoom) return "room_capacity_exceeded";
    if (this.#in(this.#shares, ofAgent) >= perAgent) return "agent_capacity_exceeded";
    if (this.#in(this.#shares, ofServer) >= perServer) return "server_capacity_exceeded";
    if (this.#total >= global) return "global_capacity_exceeded";
    this.#total += 1;
    this.#rooms.set(room, this.#in(this.#rooms, room) + 1);
    for (const share of [ofAgent, ofServer]) this.#shares.set(share, this.#in(this.#shares, share) + 1);
    return null;
  }

  /** Takes an intake envelope's slot, or returns what is full. */
  takeEnvelope({ room, sender }: NewIntakeEnvelope): EnvelopeDenial | null {
    const { roomEnvelopes = Infinity, senderEnvelopes = Infinity } = this.#capacity;
    const [ofRoom, ofSender] = [roomShare(room), senderShare(sender)];
    if (this.#in(this.#shares, ofSender) >= senderEnvelopes) return "sender_envelopes_exceeded";
    if (this.#in(this.#shares, ofRoom) >= roomEnvelopes) return "room_envelopes_exceeded";
    for (const share of [ofRoom, ofSender]) this.#shares.set(share, this.#in(this.#shares, share) + 1);
    return null;
  }

  #in(counts: ReadonlyMap<string, number>, key: string): number {
    return counts.get(key) ?? 0;
  }
}
