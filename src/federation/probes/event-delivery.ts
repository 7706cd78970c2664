// What crosses in a room that both share, directly or through a third server.
// Invariants: that something did not arrive is stated only if what the witness sent after receiving it did, or if
// another refusal explains it; what the witness may have passed on is never said to have come directly.
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import type { MatrixAnswer } from "../homeserver/api.ts";
import { type Explanation, NO_WITNESS, type ProbedRoom } from "./probed-room.ts";
import {
  homeserverRefusal,
  homeserverUnclear,
  notApplicable,
  notConfigured,
  type ProbeResult,
  type ProbeSubject,
} from "./read-answers.ts";
import type { Sent } from "./user.ts";

/** Barriers that every direction passes: an absence is explained; the wait is over; a last check was made. */
interface Passes {
  readonly explained: Pass;
  readonly waited: Pass;
  /** From here on the witness may have passed on whatever there is. */
  readonly looked: Pass;
}

interface Crossing {
  readonly direct: ProbeResult;
  /** Undefined where it crossed directly. */
  readonly viaWitness: ProbeResult | undefined;
  readonly eventId: string | undefined;
}

/** Whether the witness has got what it is to pass on; `absent` where nobody stands in the room as one. */
type AtWitness = "held" | "late" | "absent";

interface Relay {
  /** What the witness wrote has arrived. */
  readonly passed: boolean;
  /** What it was to pass on never got to it. */
  readonly isLate: boolean;
  /** The event has come after all, and the witness has not written. */
  readonly hasCome: boolean;
  readonly finding?: ProbeResult;
}

const NOT_PASSED: Relay = { passed: false, isLate: false, hasCome: false };
const LATE = notApplicable("witness_lacks_event");
/** What comes directly may be this much slower than what goes to the witness, though something speaks against it. */
const DIRECT_MS = 1_000;

/** One direction in which events cross. */
interface Direction {
  readonly probe: "message_to_target" | "state_to_target" | "message_to_partner";
  readonly vantage: ProbeSubject["vantage"];
  readonly send: () => Promise<Sent>;
  /** Why nothing can be sent, if the sender's own homeserver refuses and that means something. */
  refused(): Promise<Explanation | undefined>;
  /** What the sender is otherwise. */
  readonly outsider: string;
  receives(eventId: string): Promise<boolean>;
  /** Whether the receiver is shown nothing of the room at all, so that an absence says nothing. */
  isBlind?(): Promise<boolean>;
  /** Whether the receiver will never be shown the event, so that waiting shows nothing. */
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
      const missing = notConfigured(partner === undefined ? "user" : "observer");
      return {
        items: [
          await this.#room.item("message_to_target", "partner", () => missing),
          await this.#room.item("message_to_partner", "operator", () => missing),
        ],
        // The probes of history need the ID of a new event, also where nobody observes its arrival.
        eventId: (await observer?.send(this.#room.id).catch(() => undefined))?.eventId,
      };
    }
    const inwards = {
      vantage: "partner",
      receives: (eventId: string) => observer.sees(this.#room.id, eventId),
      isMoot: () => observer.isShutOut(this.#room.id),
      whyNot: (eventId: string) => this.#whyNotInwards(eventId),
      whyNotRelayed: async () =>
        (await this.#room.hasLeft()) ?? (await this.#refusedByAcl(this.#room.people.witness?.serverName)),
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
      isMoot: async () => (await partner.isNoAdministrator()) && (await partner.isShutOut(this.#room.id)),
      whyNot: async () => (await this.#room.isEmptied(observer)) ?? this.#room.options.transport,
      whyNotRelayed: () => this.#room.isEmptied(this.#room.people.witness),
      refused: () => this.#room.hasLeft(),
      outsider: "observer_is_no_member",
      isBlind: async () => !(await partner.isJoined(this.#room.id)),
    });
    const count = directions.length;
    const gates = { explained: gateFor(count), waited: gateFor(count), looked: gateFor(count) };
    const crossed = await Promise.all(directions.map((direction) => this.#cross(direction, gates)));
    return { items: crossed.flatMap(({ items }) => items), eventId: crossed.at(-1)?.eventId };
  }

  /** Why the target has not taken in what the partner's server sent it: the refusal that is nearest to the event. */
  async #whyNotInwards(eventId: string): Promise<Explanation | undefined> {
    return (
      (await this.#room.options.violationOf?.(eventId)) ??
      this.#room.options.transport ??
      (await this.#refusedByAcl(this.#room.people.targetName)) ??
      (await this.#room.hasLeft())
    );
  }

  /** A server refuses what it receives of a room for the reason for which it refuses a join. */
  async #refusedByAcl(at: string | undefined): Promise<Explanation | undefined> {
    const { server } = this.#room.people;
    if (at === undefined) return undefined;
    const found = await server?.makeJoin(at, this.#room.id, this.#room.joiner()).catch(() => undefined);
    if (found?.verdict !== "closed" || found.layer !== "room_acl") return undefined;
    return { layer: "room_acl", reason: "server_banned" };
  }

  async #cross(
    direction: Direction,
    gates: Readonly<Record<keyof Passes, () => Pass>>,
  ): Promise<{ items: EvidenceItem[]; eventId: string | undefined }> {
    let crossing: Crossing | undefined;
    const mine = { explained: gates.explained(), waited: gates.waited(), looked: gates.looked() };
    const items = [
      await this.#room.item(direction.probe, direction.vantage, async () => {
        try {
          crossing = await this.#send(direction, mine);
          return crossing.direct;
        } finally {
          for (const pass of Object.values(mine)) pass(true);
        }
      }),
    ];
    const unsaid = () =>
      this.#room.people.witness === undefined ? notConfigured("witness") : sameOf(items[0]);
    const relayed = crossing === undefined ? unsaid() : crossing.viaWitness;
    if (relayed !== undefined) {
      items.push(await this.#room.item(`${direction.probe}_via_witness`, "witness", () => relayed));
    }
    return { items, eventId: crossing?.eventId };
  }

  /**
   * All directions wait at the same time, and the witness writes when each has waited, so that what it passes on is
   * not taken for what came directly. Where nothing can come directly, each waits only a moment after the witness has
   * the events; an event that nobody would be shown is not waited for.
   */
  async #send(direction: Direction, { explained, waited, looked }: Passes): Promise<Crossing> {
    const { answer, eventId } = await direction.send();
    if (eventId === undefined) {
      const refused = await notSent(answer, direction);
      const viaWitness = this.#room.people.witness === undefined ? notConfigured("witness") : refused;
      return { direct: refused, viaWitness, eventId };
    }
    let [isMoot, isEnough] = [false, false];
    let atWitness: AtWitness | undefined;
    const prepare = async () => {
      const isExplained = (await direction.whyNot(eventId)) !== undefined;
      if (isExplained) isEnough = isMoot = await direction.isMoot();
      if (!(await explained(isExplained)) || isMoot) return;
      atWitness = await this.#atWitness(eventId);
      if (atWitness !== "held") return;
      await this.#room.pause(DIRECT_MS);
      isEnough = true;
    };
    const preparing = prepare();
    // It is awaited below, unless the event comes first: then nothing that went wrong meanwhile matters.
    preparing.catch(() => undefined);
    const arrives = this.#room.within(
      () => direction.receives(eventId),
      () => isEnough,
    );
    if (await arrives) return { direct: arrived(eventId), viaWitness: undefined, eventId };
    await preparing;
    await waited(true);
    const relay = await this.#relay(eventId, direction, { isMoot, atWitness, looked });
    if (relay.hasCome) return { direct: arrived(eventId), viaWitness: undefined, eventId };
    const isBlind = !relay.passed && (await direction.isBlind?.()) === true;
    // It is there, and may have come either way.
    const isThere = relay.finding?.verdict === "open";
    const judged = (explanation: Explanation | undefined, reason: string): ProbeResult => {
      const isMissing = relay.passed && !isThere;
      if (isBlind && explanation === undefined) return notApplicable("user_is_no_member");
      return {
        verdict: isMissing || explanation !== undefined ? "closed" : "unknown",
        layer: explanation?.layer ?? "not_seen",
        status: null,
        reason:
          explanation?.reason ?? (isMissing ? reason : isThere ? "arrived_late" : "unexplained_absence"),
        references: [eventId, ...(explanation?.references ?? [])],
      };
    };
    const viaWitness = async () => {
      const explanation = await direction.whyNotRelayed();
      return explanation === undefined && relay.isLate ? LATE : judged(explanation, "not_relayed");
    };
    return {
      direct: judged(await direction.whyNot(eventId), "not_arrived"),
      viaWitness: relay.finding ?? (await viaWitness()),
      eventId,
    };
  }

  /** Gives the event the time to get to the witness. */
  async #atWitness(eventId: string): Promise<AtWitness> {
    const { witness } = this.#room.people;
    if (witness === undefined || !(await witness.isJoined(this.#room.id))) return "absent";
    return (await this.#room.within(() => witness.sees(this.#room.id, eventId))) ? "held" : "late";
  }

  /** Lets the witness write after it has the event: when that arrives, what the witness relays has arrived as well. */
  async #relay(
    eventId: string,
    { receives }: Direction,
    { isMoot, atWitness: known, looked }: { isMoot: boolean; atWitness: AtWitness | undefined; looked: Pass },
  ): Promise<Relay> {
    const { witness } = this.#room.people;
    if (witness === undefined)
      return { ...NOT_PASSED, finding: notConfigured("witness"), hasCome: await receives(eventId) };
    if (isMoot) {
      return (await witness.isJoined(this.#room.id)) ? NOT_PASSED : { ...NOT_PASSED, finding: NO_WITNESS };
    }
    const atWitness = known ?? (await this.#atWitness(eventId));
    if (atWitness === "absent")
      return { ...NOT_PASSED, finding: NO_WITNESS, hasCome: await receives(eventId) };
    if (atWitness === "late") return { ...NOT_PASSED, isLate: true, hasCome: await receives(eventId) };
    if (await receives(eventId)) return { ...NOT_PASSED, hasCome: true };
    await looked(true);
    const { eventId: later } = await witness.send(this.#room.id);
    if (later === undefined) return NOT_PASSED;
    const passed = await this.#room.within(() => receives(later));
    if (!(await receives(eventId))) return { ...NOT_PASSED, passed };
    const at = { layer: "witness_homeserver", status: 200, reason: "relayed" } as const;
    const finding = { verdict: "open", ...at, references: [eventId, later] } as const;
    return { ...NOT_PASSED, passed, finding };
  }
}

/** A failure of one way, such as a homeserver that is down, leaves the other way unknown too. */
function sameOf(item: EvidenceItem | undefined): ProbeResult | undefined {
  if (item === undefined) return undefined;
  const { verdict, status, reason } = item;
  return { verdict, layer: "network", status, reason };
}

function arrived(eventId: string): ProbeResult {
  return { verdict: "open", layer: "homeserver", status: 200, reason: "arrived", references: [eventId] };
}

/** The sender's own homeserver did not take the event. That alone says nothing about the target. */
async function notSent(answer: MatrixAnswer, { refused, outsider }: Direction): Promise<ProbeResult> {
  if (homeserverRefusal(answer) === undefined) return homeserverUnclear(answer);
  const explanation = await refused();
  return explanation === undefined
    ? notApplicable(outsider)
    : { verdict: "closed", status: null, ...explanation };
}

/** Passes a barrier with one's own answer; resolves when everybody has passed once: whether all said yes. */
type Pass = (isSo: boolean) => Promise<boolean>;

/** A barrier for so many. @returns what gives each their own pass, which counts once however often it is used */
function gateFor(count: number): () => Pass {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  let missing = count;
  let isSoForAll = true;
  return () => {
    let isTold = false;
    return (isSo) => {
      if (!isTold) {
        isTold = true;
        isSoForAll &&= isSo;
        missing -= 1;
        if (missing === 0) resolve(isSoForAll);
      }
      return promise;
    };
  };
}
