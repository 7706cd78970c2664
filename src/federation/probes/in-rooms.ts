// Probes inside a room that both share: does a message cross, directly or through a third server, can the
// partner's people come (back) in, is its server given history?
// Invariants: that something did not arrive is stated only if what was sent after it through the witness did,
// or if another refusal explains it; else it is `unknown`. Who joins leaves again.
import type { RoomId } from "../../domain/identifiers.ts";
import type { EvidenceItem } from "../../records/evidence-item.ts";
import { homeserverRefusal, homeserverUnclear, type MatrixAnswer } from "./answers.ts";
import type { PartnerServer } from "./as-server.ts";
import {
  type AnsweringLayer,
  type Finding,
  leftOut,
  notApplicable,
  type OutsideProbe,
  observe,
  type ProbeSubject,
} from "./finding.ts";
import { gateFor, type Pass } from "./gates.ts";
import type { Person, ProbeSources } from "./user.ts";

/** Who takes part; whoever is absent leaves out the probes that need them. */
export interface RoomPeople {
  readonly partnerName: string;
  readonly targetName: string;
  readonly server: PartnerServer | undefined;
  readonly partner: Person | undefined;
  readonly other: Person | undefined;
  readonly witness: Person | undefined;
  readonly observer: Person | undefined;
}

/** Why something could not arrive, as far as other refusals tell. */
export interface Explanation {
  readonly layer: AnsweringLayer;
  readonly reason: string;
  readonly references?: readonly string[];
}

export interface RoomProbeOptions {
  /** How long an event may take to arrive, in milliseconds. */
  readonly arrivalTimeoutMs: number;
  /** Set when the target's transport refuses the partner, and so sends it nothing either. */
  readonly transport: Explanation | undefined;
  /** What the border's violations say of an event; for those who can read them. */
  readonly violationOf?: ((eventId: string) => Promise<Explanation | undefined>) | undefined;
  /** Also sends a state event, which stays in the room for ever: for rooms that are thrown away. */
  readonly withState?: boolean;
}

const POLL_FIRST_MS = 100;
/** What has not come within a moment is asked for less often: many rooms are looked at side by side. */
const POLL_MAX_MS = 500;
const NO_WITNESS = notApplicable("witness_is_no_member");

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
  /** Why it cannot have come directly. */
  whyNot(eventId: string): Promise<Explanation | undefined>;
  /** Why it cannot have come through the witness either. */
  whyNotRelayed(): Promise<Explanation | undefined>;
}

export class RoomProbes {
  readonly #room: RoomId;
  readonly #people: RoomPeople;
  readonly #options: RoomProbeOptions;
  readonly #sources: ProbeSources;

  constructor(room: RoomId, people: RoomPeople, options: RoomProbeOptions, sources: ProbeSources) {
    this.#room = room;
    this.#people = people;
    this.#options = options;
    this.#sources = sources;
  }

  /** All of them: what crosses in both directions at the same time, then joins and history. */
  async run(): Promise<EvidenceItem[]> {
    const { items, eventId } = await this.#crossings();
    return [...items, ...(await this.#joins()), ...(await this.#history(eventId))];
  }

  /** Only what crosses, in both directions. */
  async crossings(): Promise<EvidenceItem[]> {
    return (await this.#crossings()).items;
  }

  #item(probe: OutsideProbe, vantage: ProbeSubject["vantage"], attempt: () => Promise<Finding> | Finding) {
    const about = { plane: "rooms", partner: this.#people.partnerName, subject: this.#room } as const;
    return observe({ ...about, probe, vantage }, this.#sources.clock, attempt);
  }

  async #crossings(): Promise<{ items: EvidenceItem[]; eventId: string | undefined }> {
    const { partner, observer } = this.#people;
    if (partner === undefined || observer === undefined) {
      const missing = leftOut(partner === undefined ? "user" : "observer");
      return {
        items: [
          await this.#item("message_to_target", "partner", () => missing),
          await this.#item("message_to_partner", "operator", () => missing),
        ],
        // History is asked for by the ID of a fresh event, whoever looks for its arrival.
        eventId: (await observer?.send(this.#room))?.eventId,
      };
    }
    const inwards = {
      vantage: "partner",
      receives: (eventId: string) => observer.sees(this.#room, eventId),
      whyNot: (eventId: string) => this.#whyNotInwards(eventId),
      whyNotRelayed: () => this.#hasLeft(),
      // The sender's own homeserver refuses; it counts where nobody of the partner's is in the room any more.
      refused: async () => (await this.#isEmptied(observer)) ?? (await this.#hasLeft()),
      outsider: "user_is_no_member",
    } as const;
    const directions: Direction[] = [
      { ...inwards, probe: "message_to_target", send: () => partner.send(this.#room) },
    ];
    if (this.#options.withState === true) {
      directions.push({ ...inwards, probe: "state_to_target", send: () => partner.sendState(this.#room) });
    }
    directions.push({
      probe: "message_to_partner",
      vantage: "operator",
      send: () => observer.send(this.#room),
      receives: (eventId) => partner.holds(this.#room, eventId),
      whyNot: async () => (await this.#isEmptied(observer)) ?? this.#options.transport,
      whyNotRelayed: () => this.#isEmptied(this.#people.witness),
      refused: () => this.#hasLeft(),
      outsider: "observer_is_no_member",
      isBlind: async () => !(await partner.isJoined(this.#room)),
    });
    const count = directions.length;
    const gates = { explained: gateFor(count), waited: gateFor(count) };
    const crossed = await Promise.all(directions.map((direction) => this.#cross(direction, gates)));
    return { items: crossed.flatMap(({ items }) => items), eventId: crossed.at(-1)?.eventId };
  }

  /** Why the target has not taken in what the partner's server sent it: the refusal that is nearest to the event. */
  async #whyNotInwards(eventId: string): Promise<Explanation | undefined> {
    return (
      (await this.#options.violationOf?.(eventId)) ??
      this.#options.transport ??
      (await this.#refusedByAcl()) ??
      (await this.#hasLeft())
    );
  }

  /** The target refuses what it receives of a room for the reason for which it refuses a join. */
  async #refusedByAcl(): Promise<Explanation | undefined> {
    const { server, targetName } = this.#people;
    const found = await server?.makeJoin(targetName, this.#room, this.#joiner()).catch(() => undefined);
    if (found?.verdict !== "closed" || found.layer !== "room_acl") return undefined;
    return { layer: "room_acl", reason: "server_banned" };
  }

  /** Nothing of a room arrives at a server that has left it, by its own word or as the witness sees it. */
  async #hasLeft(): Promise<Explanation | undefined> {
    const { server, observer, witness, targetName } = this.#people;
    if ((await observer?.isJoined(this.#room)) !== false) return undefined;
    const left = { layer: "room_membership", reason: "target_has_left" } as const;
    if ((await witness?.joinedFrom(this.#room, targetName))?.length === 0) return left;
    const asked = await server?.makeJoin(targetName, this.#room, this.#joiner()).catch(() => undefined);
    return asked?.reason === "not_in_room" ? left : undefined;
  }

  /** A server without members in a room is sent nothing of it, by those who see it so. */
  async #isEmptied(viewer: Person | undefined): Promise<Explanation | undefined> {
    const members = await viewer?.joinedFrom(this.#room, this.#people.partnerName);
    return members?.length === 0 ? { layer: "room_membership", reason: "no_member" } : undefined;
  }

  #joiner(): string {
    const { other, partner, partnerName } = this.#people;
    return (other ?? partner)?.userId ?? `@probe:${partnerName}`;
  }

  async #cross(
    direction: Direction,
    gates: Readonly<Record<keyof Passes, () => Pass>>,
  ): Promise<{ items: EvidenceItem[]; eventId: string | undefined }> {
    let crossing: Crossing | undefined;
    const mine = { explained: gates.explained(), waited: gates.waited() };
    const items = [
      await this.#item(direction.probe, direction.vantage, async () => {
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
      items.push(await this.#item(`${direction.probe}_via_witness`, "witness", () => relayed));
    }
    return { items, eventId: crossing?.eventId };
  }

  /**
   * All directions wait at the same time. The witness writes when each has waited, so that what it passes on is
   * not taken for what came directly; where nothing can come directly anyway, it writes at once.
   */
  async #send(direction: Direction, { explained, waited }: Passes): Promise<Crossing> {
    const { answer, eventId } = await direction.send();
    if (eventId === undefined) {
      const refused = await notSent(answer, direction);
      const viaWitness = this.#people.witness === undefined ? leftOut("witness") : refused;
      return { direct: refused, viaWitness, eventId };
    }
    const references = [eventId];
    const arrives = this.#within(() => direction.receives(eventId));
    const isExplained = direction.whyNot(eventId).then((explanation) => explanation !== undefined);
    const relaying = isExplained
      .then((is) => explained(is))
      .then((are) => (are ? this.#relay(eventId, direction) : undefined));
    const [hasArrived, relayedAtOnce] = await Promise.all([arrives, relaying]);
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
    if (relayedAtOnce === undefined) await waited(true);
    const relayed = relayedAtOnce ?? (await this.#relay(eventId, direction));
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

  /** Lets the witness write after it has seen the event: what it passes on then has arrived as well. */
  async #relay(
    eventId: string,
    { receives }: Direction,
  ): Promise<{ readonly passed: boolean; readonly finding?: Finding }> {
    const { witness } = this.#people;
    if (witness === undefined) return { passed: false, finding: leftOut("witness") };
    if (!(await witness.isJoined(this.#room))) return { passed: false, finding: NO_WITNESS };
    await this.#within(() => witness.sees(this.#room, eventId));
    const { eventId: later } = await witness.send(this.#room);
    if (later === undefined) return { passed: false };
    const passed = await this.#within(() => receives(later));
    if (!passed || !(await receives(eventId))) return { passed };
    const references = [eventId, later];
    return {
      passed,
      finding: { verdict: "open", layer: "witness_homeserver", status: 200, reason: "relayed", references },
    };
  }

  async #joins(): Promise<EvidenceItem[]> {
    const { server, partner, other, witness, targetName } = this.#people;
    const isLeft = (await this.#hasLeft()) !== undefined;
    const hasWitness = (await witness?.isJoined(this.#room)) !== false;
    const makeJoin = (at: string | undefined) => {
      if (server === undefined) return leftOut("signing_key");
      if (at === undefined) return leftOut("witness");
      // What others let happen in a room that the target is not in is no way to the target.
      if (isLeft && at !== targetName) return notApplicable("target_has_left");
      if (!hasWitness && at !== targetName) return NO_WITNESS;
      return server.makeJoin(at, this.#room, this.#joiner());
    };
    // While the partner's server has a member, a join is its own decision and says nothing.
    const isInside = (await partner?.isJoined(this.#room)) === true;
    const join = (via: string | undefined) => {
      if (other === undefined) return leftOut("other_user");
      if (via === undefined) return leftOut("witness");
      if (isLeft) return notApplicable("target_has_left");
      if (!hasWitness && via !== targetName) return NO_WITNESS;
      return isInside ? notApplicable("server_is_member") : this.#join(other, via);
    };
    const atTarget = await this.#item("make_join", "partner", () => makeJoin(targetName));
    const atWitness = await this.#item("make_join_at_witness", "partner", () =>
      makeJoin(witness?.serverName),
    );
    return [
      atTarget,
      atWitness,
      await this.#item("remote_join", "partner", async () =>
        unlessNotAsked(await join(targetName), atTarget),
      ),
      await this.#item("remote_join_via_witness", "partner", async () =>
        unlessNotAsked(await join(witness?.serverName), atWitness),
      ),
    ];
  }

  async #join(other: Person, via: string): Promise<Finding> {
    const answer = await other.join(this.#room, [via]);
    if (answer.status !== 200) return homeserverRefusal(answer) ?? homeserverUnclear(answer);
    const { observer } = this.#people;
    const seen = await this.#within(async () =>
      (await observer?.joinedFrom(this.#room, other.serverName))?.includes(other.userId),
    );
    await other.leave(this.#room);
    const reason = seen ? "joined_and_seen" : "joined";
    return { verdict: "open", layer: "homeserver", status: 200, reason };
  }

  async #history(eventId: string | undefined): Promise<EvidenceItem[]> {
    const { server, witness, targetName } = this.#people;
    const hasWitness = (await witness?.isJoined(this.#room)) !== false;
    // A server that has not received it yet would answer as one that refuses.
    const isAtWitness =
      eventId === undefined ||
      witness === undefined ||
      !hasWitness ||
      (await this.#within(() => witness.sees(this.#room, eventId)));
    const ask = (at: string | undefined, how: "event" | "backfill") => {
      if (server === undefined) return leftOut("signing_key");
      if (at === undefined) return leftOut("witness");
      if (!hasWitness && at !== targetName) return NO_WITNESS;
      if (eventId === undefined) return notApplicable("no_fresh_event");
      if (!isAtWitness && at !== targetName) return notApplicable("witness_lacks_event");
      return how === "event" ? server.event(at, eventId) : server.backfill(at, this.#room, eventId);
    };
    const there = witness?.serverName;
    return [
      await this.#item("event_at_target", "partner", () => ask(targetName, "event")),
      await this.#item("event_at_witness", "partner", () => ask(there, "event")),
      await this.#item("backfill_at_target", "partner", () => ask(targetName, "backfill")),
      await this.#item("backfill_at_witness", "partner", () => ask(there, "backfill")),
    ];
  }

  async #within(look: () => Promise<boolean | undefined>): Promise<boolean> {
    const { clock } = this.#sources;
    const deadline = clock.now() + this.#options.arrivalTimeoutMs;
    for (let pollMs = POLL_FIRST_MS; ; pollMs = Math.min(pollMs * 1.5, POLL_MAX_MS)) {
      if (await look()) return true;
      const leftMs = deadline - clock.now();
      if (leftMs <= 0) return false;
      await clock.sleep(Math.min(pollMs, leftMs));
    }
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

/** The sender's own homeserver did not take the event. That alone says nothing about the target. */
async function notSent(answer: MatrixAnswer, { refused, outsider }: Direction): Promise<Finding> {
  if (homeserverRefusal(answer) === undefined) return homeserverUnclear(answer);
  const explanation = await refused();
  return explanation === undefined
    ? notApplicable(outsider)
    : { verdict: "closed", status: null, ...explanation };
}
