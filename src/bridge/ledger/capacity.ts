// Capacity: how much may be open at a time, in the deployment and in each share of it.
// Invariants: an agent that never accepts, or one server's users, fill their own share only; agents that fill a server's
// share or the deployment leave each other agent its reserve, with which no more than twice the share is open; what awaits
// a key has limits of its own and takes nothing from delegations. Rooms are locked one by one, so that two transactions
// which run at once may together exceed a limit other than the room's by what each of them brings.
import { serverOf, type UserId } from "../../domain/identifiers.ts";
import type { Capacity, NewDelegation, NewIntakeEnvelope } from "./admission-types.ts";
import { type Queryable, rows, statement } from "./postgres.ts";
import type { INTAKE_ENVELOPE_REASONS, TerminalReason } from "./states.ts";

/** What is open before an admission: by room, agent, server, and by the room and the sender of intake envelopes. */
export interface OpenCounts {
  readonly total: number;
  readonly rooms: ReadonlyMap<string, number>;
  readonly shares: ReadonlyMap<string, number>;
}

type EnvelopeDenial = (typeof INTAKE_ENVELOPE_REASONS.denied)[number];

/** The share with what is taken from agents' reserves. */
const withReserves = (most: number) => 2 * most;
/** What users of one server have open of one agent. */
const pairShare = (agent: string, server: string) => `pair ${server} ${agent}`;
const queueShare = (room: string) => `queue ${room}`;

// Nothing is counted further than it may go, so that the cost does not depend on how much is open; of a pair, the open
// rows of its agent are read. What was counted to its end becomes the upper bound of all that is open.
const COUNT_OPEN = statement("count_open")`
  WITH counted AS MATERIALIZED (
    SELECT count(*)::int AS open FROM (SELECT FROM bridge_delegations WHERE terminal_at IS NULL LIMIT $1) one
  ), bound AS (
    UPDATE bridge_capacity SET counted_open = open, counted_at_admitted = admitted FROM counted WHERE open < $1
  )
  SELECT NULL AS share, open FROM counted WHERE open < $1
  UNION ALL SELECT 'agent ' || agent, (SELECT count(*)::int FROM (
    SELECT FROM bridge_delegations WHERE bridge_if_open(terminal_at, agent_id) = agent LIMIT $3) one)
  FROM unnest($2::text[]) agent
  UNION ALL SELECT 'server ' || server, (SELECT count(*)::int FROM (
    SELECT FROM bridge_delegations WHERE bridge_if_open(terminal_at, bridge_server_of(sender_mxid)) = server LIMIT $5) one)
  FROM unnest($4::text[]) server
  UNION ALL SELECT 'pair ' || server || ' ' || agent, (SELECT count(*)::int FROM (
    SELECT FROM bridge_delegations
    WHERE bridge_if_open(terminal_at, agent_id) = agent AND bridge_server_of(sender_mxid) = server LIMIT $8) one)
  FROM unnest($6::text[], $7::text[]) AS pair (server, agent)`;

const COUNT_AWAITING = statement("count_awaiting")`
  SELECT 'room ' || room_id AS share, count(*)::int AS open FROM bridge_encrypted_intake
  WHERE state = 'awaiting_key' AND room_id = ANY ($1) GROUP BY 1
  UNION ALL SELECT 'sender ' || sender_mxid, count(*)::int FROM bridge_encrypted_intake
  WHERE state = 'awaiting_key' AND sender_mxid = ANY ($2) GROUP BY 1`;

/**
 * Counts what is open, as far as a limit. Agents and servers are counted only when what is open, with what is new, might
 * exceed a share.
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
  const { global, agent, server, agentReserve = 0 } = capacity;
  const { most, rooms } = known;
  const { delegations } = found;
  const least = Math.min(global, server ?? Infinity, agent ?? Infinity);
  const after = most + delegations.length;
  if (delegations.length === 0 || after <= least) return { total: most, rooms, shares };
  let total = most;
  const asked = delegations
    .filter(({ refused }) => refused === undefined)
    .map(({ sender, agent }) => ({ server: serverOf(sender as UserId), agent }));
  const pairs = [...new Map(asked.map((one) => [pairShare(one.agent, one.server), one])).values()];
  const counted = await rows<{ share: string | null; open: number }>(on, COUNT_OPEN, [
    after > global ? withReserves(global) : least,
    [...new Set(pairs.map((one) => one.agent))],
    Math.max(agent ?? 0, agentReserve),
    [...new Set(pairs.map((one) => one.server))],
    withReserves(server ?? 0),
    pairs.map((one) => one.server),
    pairs.map((one) => one.agent),
    agentReserve,
  ]);
  for (const { share, open } of counted) {
    if (share === null) total = open;
    else shares.set(share, open);
  }
  return { total, rooms, shares };
}

/** Slots while they are being assigned. */
export class Slots {
  readonly #capacity: Capacity;
  /** What is open, in all and by share. */
  readonly #open: Map<string, number>;

  constructor({ total, rooms, shares }: OpenCounts, capacity: Capacity) {
    this.#capacity = capacity;
    this.#open = new Map([...shares, ["", total]]);
    for (const [room, open] of rooms) this.#open.set(queueShare(room), open);
  }

  /** Takes a delegation's slot, or returns what is full. */
  take({ room, agent, sender }: NewDelegation): TerminalReason | null {
    const most = this.#capacity;
    const server = serverOf(sender as UserId);
    const [ofAgent, ofPair] = [`agent ${agent}`, pairShare(agent, server)];
    return this.#take([
      ["room_capacity_exceeded", queueShare(room), most.room],
      ["agent_capacity_exceeded", ofAgent, most.agent],
      ["server_capacity_exceeded", `server ${server}`, this.#limit(ofPair, most.server)],
      ["server_capacity_exceeded", ofPair, undefined],
      ["global_capacity_exceeded", "", this.#limit(ofAgent, most.global)],
    ]);
  }

  /** Takes an intake envelope's slot, or returns what is full. */
  takeEnvelope({ room, sender }: NewIntakeEnvelope): EnvelopeDenial | null {
    const most = this.#capacity;
    return this.#take([
      ["sender_envelopes_exceeded", `sender ${sender}`, most.senderEnvelopes],
      ["room_envelopes_exceeded", `room ${room}`, most.roomEnvelopes],
    ]);
  }

  /** The limit of a larger share, for what is open of an agent in it. */
  #limit(ofAgent: string, most: number | undefined): number | undefined {
    const isReserved = (this.#open.get(ofAgent) ?? 0) < (this.#capacity.agentReserve ?? 0);
    return isReserved && most !== undefined ? withReserves(most) : most;
  }

  /** Takes one of each share, or of none where one of them is full. */
  #take<Reason>(shares: readonly (readonly [Reason, string, number | undefined])[]): Reason | null {
    const openIn = (share: string) => this.#open.get(share) ?? 0;
    const full = shares.find(([, share, most = Infinity]) => openIn(share) >= most);
    if (full !== undefined) return full[0];
    for (const [, share] of shares) this.#open.set(share, openIn(share) + 1);
    return null;
  }
}
