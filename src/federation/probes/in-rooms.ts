// Probes inside a room that both share: what crosses, can the partner's people come (back) in, is its server
// given history? Invariants: who joins leaves again, and only after history was asked for, since a server gives it
// to those who are in the room as it is asked.
import type { EvidenceItem } from "../../records/evidence-item.ts";
import { homeserverRefusal, homeserverUnclear } from "./answers.ts";
import { type Finding, leftOut, notApplicable, type OutsideProbe, wasLeftOut } from "./finding.ts";
import { NO_WITNESS, type ProbedRoom } from "./probed-room.ts";
import { RoomCrossings } from "./room-crossings.ts";

/** Whose copy of the room is asked: the target's, or the third server's. */
interface Door {
  /** Absent without a witness. */
  readonly server: string | undefined;
  /** Why the third server cannot be asked. */
  readonly hindrance: Finding | undefined;
  readonly probes: Readonly<Record<"makeJoin" | "join" | "event" | "backfill", OutsideProbe>>;
}

const AT_TARGET: Door["probes"] = {
  makeJoin: "make_join",
  join: "remote_join",
  event: "event_at_target",
  backfill: "backfill_at_target",
};
const AT_WITNESS: Door["probes"] = {
  makeJoin: "make_join_at_witness",
  join: "remote_join_via_witness",
  event: "event_at_witness",
  backfill: "backfill_at_witness",
};

export class RoomProbes {
  readonly #room: ProbedRoom;

  constructor(room: ProbedRoom) {
    this.#room = room;
  }

  /** All of them: what crosses in both directions at the same time, then joins and history, at one server after another. */
  async run(): Promise<EvidenceItem[]> {
    const { items, eventId } = await new RoomCrossings(this.#room).run();
    const { witness, targetName } = this.#room.people;
    const isLeft = (await this.#room.hasLeft()) !== undefined;
    const isThere = (await witness?.isJoined(this.#room.id)) !== false;
    const target = { server: targetName, hindrance: undefined, probes: AT_TARGET };
    const third = {
      server: witness?.serverName,
      hindrance: witness === undefined ? leftOut("witness") : isThere ? undefined : NO_WITNESS,
      probes: AT_WITNESS,
    };
    return [
      ...items,
      ...(await this.#through(target, isLeft, eventId)),
      ...(await this.#through(third, isLeft, eventId)),
    ];
  }

  /** What one server lets happen: a join is asked for, made, used to ask for history, and taken back. */
  async #through(door: Door, isLeft: boolean, eventId: string | undefined): Promise<EvidenceItem[]> {
    const { makeJoin, join, event, backfill } = door.probes;
    const asked = await this.#room.item(makeJoin, "partner", () => this.#makeJoin(door, isLeft));
    const joined = await this.#room.item(join, "partner", async () =>
      unlessNotAsked(await this.#join(door, isLeft), asked),
    );
    try {
      const given = await this.#room.item(event, "partner", () => this.#history(door, event, eventId));
      const filled = await this.#room.item(backfill, "partner", () => this.#history(door, backfill, eventId));
      return [asked, joined, given, filled];
    } finally {
      if (joined.verdict !== "closed" && !wasLeftOut(joined)) await this.#leave();
    }
  }

  #makeJoin({ server, hindrance, probes }: Door, isLeft: boolean): Promise<Finding> | Finding {
    const origin = this.#room.people.server;
    if (origin === undefined) return leftOut("signing_key");
    // What others let happen in a room that the target is not in is no way to the target.
    if (isLeft && probes === AT_WITNESS) return notApplicable("target_has_left");
    if (hindrance !== undefined || server === undefined) return hindrance ?? leftOut("witness");
    return origin.makeJoin(server, this.#room.id, this.#room.joiner());
  }

  async #join({ server, hindrance }: Door, isLeft: boolean): Promise<Finding> {
    const { other, partner, observer } = this.#room.people;
    if (other === undefined) return leftOut("other_user");
    if (isLeft) return notApplicable("target_has_left");
    if (hindrance !== undefined || server === undefined) return hindrance ?? leftOut("witness");
    // While the partner's server has a member, a join is its own decision and says nothing.
    if ((await partner?.isJoined(this.#room.id)) === true) return notApplicable("server_is_member");
    const answer = await other.join(this.#room.id, [server]);
    if (answer.status !== 200) return homeserverRefusal(answer) ?? homeserverUnclear(answer);
    const seen = await this.#room.within(async () =>
      (await observer?.joinedFrom(this.#room.id, other.serverName))?.includes(other.userId),
    );
    const reason = seen ? "joined_and_seen" : "joined";
    return { verdict: "open", layer: "homeserver", status: 200, reason };
  }

  /** Until it is done, or refused: who could not come in has nothing to leave. */
  async #leave(): Promise<void> {
    const { other } = this.#room.people;
    await this.#room.within(async () => {
      const answer = await other?.leave(this.#room.id).catch(() => undefined);
      return answer !== undefined && answer.status < 429;
    });
  }

  async #history(door: Door, probe: OutsideProbe, eventId: string | undefined): Promise<Finding> {
    const { server: origin, witness } = this.#room.people;
    if (origin === undefined) return leftOut("signing_key");
    if (door.hindrance !== undefined || door.server === undefined)
      return door.hindrance ?? leftOut("witness");
    if (eventId === undefined) return notApplicable("no_fresh_event");
    // A server that has not received it yet would answer as one that refuses.
    const hasIt =
      door.probes === AT_TARGET ||
      witness === undefined ||
      (await this.#room.within(() => witness.sees(this.#room.id, eventId)));
    if (!hasIt) return notApplicable("witness_lacks_event");
    return probe === door.probes.event
      ? origin.event(door.server, eventId)
      : origin.backfill(door.server, this.#room.id, eventId);
  }
}

/**
 * A homeserver that was refused again and again asks no more for a while, and says 502 itself. Then the join
 * that was asked for by hand, a moment ago, stands for both.
 */
function unlessNotAsked(found: Finding, asked: EvidenceItem): Finding {
  const isOwnFailure = found.verdict === "unknown" && found.status !== null && found.status >= 500;
  return isOwnFailure && asked.verdict === "closed" ? notApplicable("own_server_did_not_ask") : found;
}
