// What crosses in a room that both share, directly or through a third server.
// Invariant: that something did not arrive is stated only if what was sent after it through the witness did, or
// if another refusal explains it; else it is `unknown`.
import type { EvidenceItem } from "../../records/evidence-item.ts";
import { homeserverRefusal, homeserverUnclear, type MatrixAnswer } from "./answers.ts";
import { type Finding, leftOut, notApplicable, type ProbeSubject } from "./finding.ts";
import { gateFor, type Pass } from "./gates.ts";
import { type Explanation, NO_WITNESS, type ProbedRoom } from "./probed-room.ts";

/** Whether it is known why nothing can come directly, and whether that was waited for: by every direction. */
interface Passes {
  readonly explained: Pass;
  readonly waited: Pass;
}

interface Crossing {
  readonly direct: Finding;
  /** Undefined where it crossed directly. */
  readonly viaWitness: Finding | undefined;
  readonly eventId: string | undefined;
}

/** One direction in which events cross. */
interface Direction {
  readonly probe: "message_to_target" | "state_to_target" | "message_to_partner";
  readonly vantage: ProbeSubject["vantage"];
  readonly send: () => Promise<{ readonly answer: MatrixAnswer; readonly eventId: string | undefined }>;
  /** Why nothing can be sent, if the sender's own homeserver refuses and that means something. */
  refused(): Promise<Explanation | undefined>;
  /** What the sender is otherwise. */
  readonly outsider: string;
  receives(eventId: string): Promise<boolean>;
  /** Whether who looks for it is shown nothing of the room anyway, so that an absence says nothing. */
  isBlind?(): Promise<boolean>;
  /** Whether who looks for it will never be shown it, come or not, so that nothing is learnt by waiting. */
  isMoot(): Promise<boolean>;
  /** Why it cannot have come directly. */
  whyNot(eventId: string): Promise<Explanation | undefined>;
  /** Why it cannot have come through the witness either. */
  whyNotRelayed(): Promise<Explanation | undefined>;
}

export class RoomCrossings {
  readonly #room: ProbedRoom;

  constructor(room: ProbedRoom) {
    this.#room = room;
  }

  /** Sends in every direction. @returns the items, and what was sent to the partner */
  async run(): Promise<{ items: EvidenceItem[]; eventId: string | undefined }> {
    const { partner, observer } = this.#room.people;
    if (partner === undefined || observer === undefined) {
      const missing = leftOut(partner === undefined ? "user" : "observer");
      return {
        items: [
          await this.#room.item("message_to_target", "partner", () => missing),
          await this.#room.item("message_to_partner", "operator", () => missing),
        ],
        // History is asked for by the ID of a fresh event, whoever looks for its arrival.
        eventId: (await observer?.send(this.#room.id))?.eventId,
      };
    }
    const inwards = {
      vantage: "partner",
      receives: (eventId: string) => observer.sees(this.#room.id, eventId),
      isMoot: async () => !(await observer.isJoined(this.#room.id)),
      whyNot: (eventId: string) => this.#whyNotInwards(eventId),
      whyNotRelayed: () => this.#room.hasLeft(),
      // The sender's own homeserver refuses; it counts where nobody of the partner's is in the room any more.
      refused: async () => (await this.#room.isEmptied(observer)) ?? (await this.#room.hasLeft()),
      outsider: "user_is_no_member",
    } as const;
    const directions: Direction[] = [
      { ...inwards, probe: "message_to_target", send: () => partner.send(this.#room.id) },
    ];
    if (this.#room.options.withState === true) {
      directions.push({ ...inwards, probe: "state_to_target", send: () => partner.sendState(this.#room.id) });
    }
    directions.push({
      probe: "message_to_partner",
      vantage: "operator",
      send: () => observer.send(this.#room.id),
      receives: (eventId) => partner.holds(this.#room.id, eventId),
      isMoot: async () => !(await partner.isTold(this.#room.id)),
      whyNot: async () => (await this.#room.isEmptied(observer)) ?? this.#room.options.transport,
      whyNotRelayed: () => this.#room.isEmptied(this.#room.people.witness),
      refused: () => this.#room.hasLeft(),
      outsider: "observer_is_no_member",
      isBlind: async () => !(await partner.isJoined(this.#room.id)),
    });
    const count = directions.length;
    const gates = { explained: gateFor(count), waited: gateFor(count) };
    const crossed = await Promise.all(directions.map((direction) => this.#cross(direction, gates)));
    return { items: crossed.flatMap(({ items }) => items), eventId: crossed.at(-1)?.eventId };
  }

  /** Why the target has not taken in what the partner's server sent it: the refusal that is nearest to the event. */
  async #whyNotInwards(eventId: string): Promise<Explanation | undefined> {
    return (
      (await this.#room.options.violationOf?.(eventId)) ??
      this.#room.options.transport ??
      (await this.#refusedByAcl()) ??
      (await this.#room.hasLeft())
    );
  }

  /** The target refuses what it receives of a room for the reason for which it refuses a join. */
  async #refusedByAcl(): Promise<Explanation | undefined> {
    const { server, targetName } = this.#room.people;
    const found = await server
      ?.makeJoin(targetName, this.#room.id, this.#room.joiner())
      .catch(() => undefined);
    if (found?.verdict !== "closed" || found.layer !== "room_acl") return undefined;
    return { layer: "room_acl", reason: "server_banned" };
  }

  async #cross(
    direction: Direction,
    gates: Readonly<Record<keyof Passes, () => Pass>>,
  ): Promise<{ items: EvidenceItem[]; eventId: string | undefined }> {
    let crossing: Crossing | undefined;
    const mine = { explained: gates.explained(), waited: gates.waited() };
    const items = [
      await this.#room.item(direction.probe, direction.vantage, async () => {
        try {
          crossing = await this.#send(direction, mine);
          return crossing.direct;
        } finally {
          mine.explained(true);
          mine.waited(true);
        }
      }),
    ];
    const relayed = crossing?.viaWitness;
    if (relayed !== undefined) {
      items.push(await this.#room.item(`${direction.probe}_via_witness`, "witness", () => relayed));
    }
    return { items, eventId: crossing?.eventId };
  }

  /**
   * All directions wait at the same time. The witness writes when each has waited, so that what it passes on is
   * not taken for what came directly. Where nothing can come directly anyway, that is as soon as the witness has
   * the events: each direction has then looked once more. What nobody would be shown is not waited for.
   */
  async #send(direction: Direction, { explained, waited }: Passes): Promise<Crossing> {
    const { answer, eventId } = await direction.send();
    if (eventId === undefined) {
      const refused = await notSent(answer, direction);
      const viaWitness = this.#room.people.witness === undefined ? leftOut("witness") : refused;
      return { direct: refused, viaWitness, eventId };
    }
    const references = [eventId];
    let [isMoot, isEnough, hasLooked] = [false, false, false];
    const witnessLooks = async () => {
      const isExplained = (await direction.whyNot(eventId)) !== undefined;
      if (isExplained) isEnough = isMoot = await direction.isMoot();
      if (await explained(isExplained)) hasLooked = await this.#witnessLooks(eventId);
      isEnough ||= hasLooked;
    };
    const arrives = this.#room.within(
      () => direction.receives(eventId),
      () => isEnough,
    );
    const [hasArrived] = await Promise.all([arrives, witnessLooks()]);
    if (hasArrived) {
      const direct = {
        verdict: "open",
        layer: "homeserver",
        status: 200,
        reason: "arrived",
        references,
      } as const;
      return { direct, viaWitness: undefined, eventId };
    }
    await waited(true);
    const relayed = await this.#relay(eventId, direction, { isMoot, hasLooked });
    const absent = (explanation: Explanation | undefined, reason: string): Finding => ({
      verdict: relayed.passed || explanation !== undefined ? "closed" : "unknown",
      layer: explanation?.layer ?? "not_seen",
      status: null,
      reason: explanation?.reason ?? (relayed.passed ? reason : "unexplained_absence"),
      references: [...references, ...(explanation?.references ?? [])],
    });
    const isBlind = !relayed.passed && (await direction.isBlind?.()) === true;
    const judged = (explanation: Explanation | undefined, reason: string) =>
      isBlind && explanation === undefined ? notApplicable("user_is_no_member") : absent(explanation, reason);
    return {
      direct: judged(await direction.whyNot(eventId), "not_arrived"),
      viaWitness: relayed.finding ?? judged(await direction.whyNotRelayed(), "not_relayed"),
      eventId,
    };
  }

  /** Gives the event the time to get to the witness. @returns whether there is a witness in the room */
  async #witnessLooks(eventId: string): Promise<boolean> {
    const { witness } = this.#room.people;
    if (witness === undefined || !(await witness.isJoined(this.#room.id))) return false;
    await this.#room.within(() => witness.sees(this.#room.id, eventId));
    return true;
  }

  /** Lets the witness write after it has seen the event: what it passes on then has arrived as well. */
  async #relay(
    eventId: string,
    { receives }: Direction,
    { isMoot, hasLooked }: { readonly isMoot: boolean; readonly hasLooked: boolean },
  ): Promise<{ readonly passed: boolean; readonly finding?: Finding }> {
    const { witness } = this.#room.people;
    if (witness === undefined) return { passed: false, finding: leftOut("witness") };
    if (!hasLooked && !(await this.#witnessLooks(eventId))) return { passed: false, finding: NO_WITNESS };
    if (isMoot) return { passed: false };
    const { eventId: later } = await witness.send(this.#room.id);
    if (later === undefined) return { passed: false };
    const passed = await this.#room.within(() => receives(later));
    if (!passed || !(await receives(eventId))) return { passed };
    const references = [eventId, later];
    return {
      passed,
      finding: { verdict: "open", layer: "witness_homeserver", status: 200, reason: "relayed", references },
    };
  }
}

/** The sender's own homeserver did not take the event. That alone says nothing about the target. */
async function notSent(answer: MatrixAnswer, { refused, outsider }: Direction): Promise<Finding> {
  if (homeserverRefusal(answer) === undefined) return homeserverUnclear(answer);
  const explanation = await refused();
  return explanation === undefined
    ? notApplicable(outsider)
    : { verdict: "closed", status: null, ...explanation };
}
