// Probes inside a room that both share: does a message cross, directly or through a third server, can the
// partner's people come (back) in, is its server given history?
// Invariants: that something did not arrive is stated only if what was sent after it through the witness did,
// or if another refusal explains it; else it is `unknown`. Who joins leaves again.
import type { RoomId } from "../../domain/identifiers.ts";
import type { EvidenceItem } from "../evidence/item.ts";
import { homeserverRefusal, homeserverUnclear, type MatrixAnswer } from "./answers.ts";
import type { PartnerServer } from "./as-server.ts";
import {
  type AnsweringLayer,
  type Finding,
  leftOut,
  type OutsideProbe,
  observe,
  type ProbeSubject,
} from "./finding.ts";
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
  /**
   * Runs with the network between partner and target cut, so that what crosses came through the witness;
   * without it that is only seen where nothing crosses directly.
   */
  readonly withoutDirectLink?: (<Result>(work: () => Promise<Result>) => Promise<Result>) | undefined;
}

const POLL_MS = 100;

interface Crossing {
  readonly direct: Finding;
  /** Undefined where it crossed directly, and the direct way could not be cut. */
  readonly viaWitness: Finding | undefined;
  readonly eventId: string | undefined;
}

type Receives = (eventId: string) => Promise<boolean>;

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

  /** All of them, one after another. */
  async run(): Promise<EvidenceItem[]> {
    const inwards = await this.#toTarget();
    const outwards = await this.#toPartner();
    return [
      ...inwards,
      ...outwards.items,
      ...(await this.#joins()),
      ...(await this.#history(outwards.eventId)),
    ];
  }

  #item(probe: OutsideProbe, vantage: ProbeSubject["vantage"], attempt: () => Promise<Finding> | Finding) {
    const about = { plane: "rooms", partner: this.#people.partnerName, subject: this.#room } as const;
    return observe({ ...about, probe, vantage }, this.#sources.clock, attempt);
  }

  async #toTarget(): Promise<EvidenceItem[]> {
    const { partner, observer } = this.#people;
    if (partner === undefined || observer === undefined) {
      const missing = leftOut(partner === undefined ? "user" : "observer");
      return [await this.#item("message_to_target", "partner", () => missing)];
    }
    const crossing = () =>
      this.#cross(
        partner,
        (eventId) => observer.sees(this.#room, eventId),
        (eventId) => this.#whyNotInwards(eventId),
      );
    return (await this.#crossingItems("message_to_target", "partner", crossing)).items;
  }

  async #toPartner(): Promise<{ items: EvidenceItem[]; eventId: string | undefined }> {
    const { partner, observer, partnerName } = this.#people;
    if (partner === undefined || observer === undefined) {
      const missing = leftOut(partner === undefined ? "user" : "observer");
      const item = await this.#item("message_to_partner", "operator", () => missing);
      // History is asked for by the ID of a fresh event, whoever looks for its arrival.
      return { items: [item], eventId: (await observer?.send(this.#room))?.eventId };
    }
    const crossing = () =>
      this.#cross(
        observer,
        (eventId) => partner.holds(this.#room, eventId),
        async () =>
          this.#emptied(await observer.joinedFrom(this.#room, partnerName)) ?? this.#options.transport,
      );
    return this.#crossingItems("message_to_partner", "operator", crossing);
  }

  /** Why the target has not taken in what the partner's server sent it: the refusal that is nearest to the event. */
  async #whyNotInwards(eventId: string | undefined): Promise<Explanation | undefined> {
    const violation = eventId === undefined ? undefined : await this.#options.violationOf?.(eventId);
    return violation ?? this.#options.transport ?? (await this.#refusedByAcl());
  }

  /** The target refuses what it receives of a room for the reason for which it refuses a join. */
  async #refusedByAcl(): Promise<Explanation | undefined> {
    const { server, targetName } = this.#people;
    const found = await server?.makeJoin(targetName, this.#room, this.#joiner()).catch(() => undefined);
    if (found?.verdict !== "closed" || found.layer !== "room_acl") return undefined;
    return { layer: "room_acl", reason: "server_banned" };
  }

  #joiner(): string {
    const { other, partner, partnerName } = this.#people;
    return (other ?? partner)?.userId ?? `@probe:${partnerName}`;
  }

  /** A server without members in a room is sent nothing of it. */
  #emptied(members: readonly string[] | undefined): Explanation | undefined {
    return members?.length === 0 ? { layer: "room_membership", reason: "no_member" } : undefined;
  }

  async #crossingItems(
    probe: "message_to_target" | "message_to_partner",
    vantage: "partner" | "operator",
    cross: () => Promise<Crossing>,
  ): Promise<{ items: EvidenceItem[]; eventId: string | undefined }> {
    let crossing: Crossing | undefined;
    const items = [
      await this.#item(probe, vantage, async () => {
        crossing = await cross();
        return crossing.direct;
      }),
    ];
    let viaWitness = crossing?.viaWitness;
    const { withoutDirectLink } = this.#options;
    if (crossing?.direct.verdict === "open" && withoutDirectLink !== undefined) {
      viaWitness = (await withoutDirectLink(cross)).viaWitness;
    }
    const found = viaWitness;
    if (found !== undefined) items.push(await this.#item(`${probe}_via_witness`, "witness", () => found));
    return { items, eventId: crossing?.eventId };
  }

  async #cross(
    from: Person,
    receives: Receives,
    explain: (eventId: string) => Promise<Explanation | undefined>,
  ): Promise<Crossing> {
    const { answer, eventId } = await from.send(this.#room);
    if (eventId === undefined) {
      const refused = refusedAtHome(answer);
      return { direct: refused, viaWitness: refused, eventId };
    }
    const references = [eventId];
    if (await this.#within(() => receives(eventId))) {
      const direct = {
        verdict: "open",
        layer: "homeserver",
        status: 200,
        reason: "arrived",
        references,
      } as const;
      return { direct, viaWitness: undefined, eventId };
    }
    const relayed = await this.#relay(eventId, receives);
    const explanation = await explain(eventId);
    const absent = (reason: string): Finding => ({
      verdict: relayed.passed || explanation !== undefined ? "closed" : "unknown",
      layer: explanation?.layer ?? "not_seen",
      status: null,
      reason: explanation?.reason ?? (relayed.passed ? reason : "unexplained_absence"),
      references: [...references, ...(explanation?.references ?? [])],
    });
    return {
      direct: absent("not_arrived"),
      viaWitness: relayed.finding ?? absent("not_relayed"),
      eventId,
    };
  }

  /** Lets the witness write after it has seen the event: what it passes on then has arrived as well. */
  async #relay(eventId: string, receives: Receives): Promise<{ passed: boolean; finding?: Finding }> {
    const { witness } = this.#people;
    if (witness === undefined) return { passed: false, finding: leftOut("witness") };
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
    const { server, other, witness, targetName } = this.#people;
    const makeJoin = (at: string | undefined) => {
      if (server === undefined) return leftOut("signing_key");
      if (at === undefined) return leftOut("witness");
      return server.makeJoin(at, this.#room, this.#joiner());
    };
    const join = (via: string | undefined) => {
      if (other === undefined) return leftOut("other_user");
      return via === undefined ? leftOut("witness") : this.#join(other, via);
    };
    return [
      await this.#item("make_join", "partner", () => makeJoin(targetName)),
      await this.#item("make_join_at_witness", "partner", () => makeJoin(witness?.serverName)),
      await this.#item("remote_join", "partner", () => join(targetName)),
      await this.#item("remote_join_via_witness", "partner", () => join(witness?.serverName)),
    ];
  }

  /** While the partner's server has a member, a join is its own decision; what counts is whether it arrives. */
  async #join(other: Person, via: string): Promise<Finding> {
    const { partner, observer } = this.#people;
    const wasInside = (await partner?.isJoined(this.#room)) === true;
    const answer = await other.join(this.#room, [via]);
    if (answer.status !== 200) return homeserverRefusal(answer) ?? homeserverUnclear(answer);
    const seen =
      observer !== undefined &&
      (await this.#within(async () =>
        (await observer.joinedFrom(this.#room, other.serverName))?.includes(other.userId),
      ));
    await other.leave(this.#room);
    if (seen) return { verdict: "open", layer: "homeserver", status: 200, reason: "joined_and_seen" };
    if (!wasInside) return { verdict: "open", layer: "homeserver", status: 200, reason: "joined" };
    const explanation = await this.#whyNotInwards(undefined);
    return {
      verdict: explanation === undefined ? "unknown" : "closed",
      layer: explanation?.layer ?? "not_seen",
      status: null,
      reason: explanation?.reason ?? "unexplained_absence",
    };
  }

  async #history(eventId: string | undefined): Promise<EvidenceItem[]> {
    const { server, witness, targetName } = this.#people;
    const ask = (at: string | undefined, how: "event" | "backfill") => {
      if (server === undefined) return leftOut("signing_key");
      if (at === undefined) return leftOut("witness");
      if (eventId === undefined) return leftOut("observer");
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
    for (;;) {
      if (await look()) return true;
      if (clock.now() >= deadline) return false;
      await clock.sleep(POLL_MS);
    }
  }
}

/** The sender's own homeserver did not take the message: it knows that its user may not write here. */
function refusedAtHome(answer: MatrixAnswer): Finding {
  const refused = homeserverRefusal(answer);
  return {
    verdict: refused === undefined ? "unknown" : "closed",
    layer: "partner_homeserver",
    status: answer.status,
    reason: refused?.reason ?? homeserverUnclear(answer).reason,
  };
}
