// Probes inside a room that both share: what crosses, can the partner's people come (back) in, is its server
// given history? Invariant: who joins leaves again.
import type { EvidenceItem } from "../../records/evidence-item.ts";
import { homeserverRefusal, homeserverUnclear } from "./answers.ts";
import { type Finding, leftOut, notApplicable } from "./finding.ts";
import { NO_WITNESS, type ProbedRoom } from "./probed-room.ts";
import { RoomCrossings } from "./room-crossings.ts";
import type { Person } from "./user.ts";

export class RoomProbes {
  readonly #room: ProbedRoom;

  constructor(room: ProbedRoom) {
    this.#room = room;
  }

  /** All of them: what crosses in both directions at the same time, then joins and history. */
  async run(): Promise<EvidenceItem[]> {
    const { items, eventId } = await new RoomCrossings(this.#room).run();
    return [...items, ...(await this.#joins()), ...(await this.#history(eventId))];
  }

  async #joins(): Promise<EvidenceItem[]> {
    const { server, partner, other, witness, targetName } = this.#room.people;
    const isLeft = (await this.#room.hasLeft()) !== undefined;
    const hasWitness = (await witness?.isJoined(this.#room.id)) !== false;
    const makeJoin = (at: string | undefined) => {
      if (server === undefined) return leftOut("signing_key");
      if (at === undefined) return leftOut("witness");
      // What others let happen in a room that the target is not in is no way to the target.
      if (isLeft && at !== targetName) return notApplicable("target_has_left");
      if (!hasWitness && at !== targetName) return NO_WITNESS;
      return server.makeJoin(at, this.#room.id, this.#room.joiner());
    };
    // While the partner's server has a member, a join is its own decision and says nothing.
    const isInside = (await partner?.isJoined(this.#room.id)) === true;
    const join = (via: string | undefined) => {
      if (other === undefined) return leftOut("other_user");
      if (via === undefined) return leftOut("witness");
      if (isLeft) return notApplicable("target_has_left");
      if (!hasWitness && via !== targetName) return NO_WITNESS;
      return isInside ? notApplicable("server_is_member") : this.#join(other, via);
    };
    const atTarget = await this.#room.item("make_join", "partner", () => makeJoin(targetName));
    const atWitness = await this.#room.item("make_join_at_witness", "partner", () =>
      makeJoin(witness?.serverName),
    );
    return [
      atTarget,
      atWitness,
      await this.#room.item("remote_join", "partner", async () =>
        unlessNotAsked(await join(targetName), atTarget),
      ),
      await this.#room.item("remote_join_via_witness", "partner", async () =>
        unlessNotAsked(await join(witness?.serverName), atWitness),
      ),
    ];
  }

  async #join(other: Person, via: string): Promise<Finding> {
    const answer = await other.join(this.#room.id, [via]);
    if (answer.status !== 200) return homeserverRefusal(answer) ?? homeserverUnclear(answer);
    const { observer } = this.#room.people;
    const seen = await this.#room.within(async () =>
      (await observer?.joinedFrom(this.#room.id, other.serverName))?.includes(other.userId),
    );
    await other.leave(this.#room.id);
    const reason = seen ? "joined_and_seen" : "joined";
    return { verdict: "open", layer: "homeserver", status: 200, reason };
  }

  async #history(eventId: string | undefined): Promise<EvidenceItem[]> {
    const { server, witness, targetName } = this.#room.people;
    const hasWitness = (await witness?.isJoined(this.#room.id)) !== false;
    // A server that has not received it yet would answer as one that refuses.
    const isAtWitness =
      eventId === undefined ||
      witness === undefined ||
      !hasWitness ||
      (await this.#room.within(() => witness.sees(this.#room.id, eventId)));
    const ask = (at: string | undefined, how: "event" | "backfill") => {
      if (server === undefined) return leftOut("signing_key");
      if (at === undefined) return leftOut("witness");
      if (!hasWitness && at !== targetName) return NO_WITNESS;
      if (eventId === undefined) return notApplicable("no_fresh_event");
      if (!isAtWitness && at !== targetName) return notApplicable("witness_lacks_event");
      return how === "event" ? server.event(at, eventId) : server.backfill(at, this.#room.id, eventId);
    };
    const there = witness?.serverName;
    return [
      await this.#room.item("event_at_target", "partner", () => ask(targetName, "event")),
      await this.#room.item("event_at_witness", "partner", () => ask(there, "event")),
      await this.#room.item("backfill_at_target", "partner", () => ask(targetName, "backfill")),
      await this.#room.item("backfill_at_witness", "partner", () => ask(there, "backfill")),
    ];
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
