// A room that is probed, who takes part, and what each of them sees of it.
// Invariant: that the target has left, or that nobody of the partner's is there, is somebody's own word.
import type { RoomId } from "../../domain/identifiers.ts";
import type { PartnerServer } from "./partner-server.ts";
import {
  type Attempt,
  notApplicable,
  type OutsideProbe,
  observe,
  type ProbeSubject,
} from "./read-answers.ts";
import type { Person, ProbeSources } from "./user.ts";

export interface RoomPeople {
  readonly partnerName: string;
  readonly targetName: string;
  readonly server: PartnerServer | undefined;
  readonly partner: Person | undefined;
  readonly other: Person | undefined;
  readonly witness: Person | undefined;
  readonly observer: Person | undefined;
}

export interface Explanation {
  readonly layer: string;
  readonly reason: string;
  readonly references?: readonly string[];
}

export interface RoomProbeOptions {
  readonly arrivalTimeoutMs: number;
  /** Set when the target's transport refuses the partner, and so sends it nothing either. */
  readonly transport: Explanation | undefined;
  readonly violationOf?: ((eventId: string) => Promise<Explanation | undefined>) | undefined;
  /** Also sends a state event, which stays in the room for ever: for rooms that are thrown away. */
  readonly withState?: boolean;
}

const POLL_FIRST_MS = 100;
/** An event that has not arrived within a moment is asked for less often, because many rooms are probed at once. */
const POLL_MAX_MS = 500;
const PAUSE_PART = 4;
export const NO_WITNESS = notApplicable("witness_is_no_member");

export class ProbedRoom {
  readonly id: RoomId;
  readonly people: RoomPeople;
  readonly options: RoomProbeOptions;
  readonly #sources: ProbeSources;

  constructor(id: RoomId, people: RoomPeople, options: RoomProbeOptions, sources: ProbeSources) {
    this.id = id;
    this.people = people;
    this.options = options;
    this.#sources = sources;
  }

  item(probe: OutsideProbe, vantage: ProbeSubject["vantage"], attempt: Attempt) {
    const about = { plane: "rooms", partner: this.people.partnerName, subject: this.id } as const;
    return observe({ ...about, probe, vantage }, this.#sources.clock, attempt);
  }

  /** Nothing of a room arrives at a server that has left it, by its own word or as the witness sees it. */
  async hasLeft(): Promise<Explanation | undefined> {
    const { server, observer, witness, targetName } = this.people;
    if ((await observer?.isJoined(this.id)) !== false) return undefined;
    const left = { layer: "room_membership", reason: "target_has_left" } as const;
    if ((await witness?.joinedFrom(this.id, targetName))?.length === 0) return left;
    const asked = await server?.makeJoin(targetName, this.id, this.joiner()).catch(() => undefined);
    return asked?.reason === "not_in_room" ? left : undefined;
  }

  /** A server without members in a room is sent nothing of it, by those who see it so. */
  async isEmptied(viewer: Person | undefined): Promise<Explanation | undefined> {
    const members = await viewer?.joinedFrom(this.id, this.people.partnerName);
    return members?.length === 0 ? { layer: "room_membership", reason: "no_member" } : undefined;
  }

  joiner(): string {
    const { other, partner, partnerName } = this.people;
    return (other ?? partner)?.userId ?? `@probe:${partnerName}`;
  }

  pause(ms: number): Promise<void> {
    return this.#sources.clock.sleep(Math.min(ms, this.options.arrivalTimeoutMs / PAUSE_PART));
  }

  /** Repeats a check until it holds, the time is over, or a check after `isEnough` has failed. */
  async within(
    look: () => Promise<boolean | undefined>,
    isEnough: () => boolean = () => false,
    timeoutMs = this.options.arrivalTimeoutMs,
  ): Promise<boolean> {
    const { clock } = this.#sources;
    const deadline = clock.now() + timeoutMs;
    for (let pollMs = POLL_FIRST_MS; ; pollMs = Math.min(pollMs * 1.5, POLL_MAX_MS)) {
      const isLast = isEnough();
      if (await look()) return true;
      const leftMs = deadline - clock.now();
      if (isLast || leftMs <= 0) return false;
      await clock.sleep(Math.min(pollMs, leftMs));
    }
  }
}
