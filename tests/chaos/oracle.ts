// What became of each question, as everybody outside the bridge sees it: the rooms, the agent's tasks, the requests
// that reached the agent, and the audit stream. Pure: it is told what was seen, and judges.
// Invariants: nothing of the bridge's own tables is looked at; what is seen once stays seen, so that a late repetition
// counts, too.
import type { EventId, GhostMxid, RoomId } from "../../src/domain/identifiers.ts";
import type { AskKind } from "./schedule.ts";

export interface Question {
  /** In its text, and so in the agent's task and in each request to the agent. */
  readonly token: string;
  readonly kind: AskKind;
  readonly round: number;
  readonly room: RoomId;
  readonly ghost: GhostMxid;
  readonly event: EventId;
  /** What an answer to it has to say; empty where any answer will do. */
  readonly answer: string;
}

/** What a ghost said. */
export interface Said {
  readonly event: string;
  readonly room: RoomId;
  readonly sender: string;
  /** The event that it replies to. */
  readonly to: string | undefined;
  /** `agent_question`: the agent asks back. */
  readonly kind: "answer" | "agent_question" | "notice";
  readonly body: string;
}

export interface AuditLine {
  readonly id: string;
  readonly event: string;
  readonly outcome: string;
  readonly reason: string;
  /** Whether a transaction brought the question, or a catchup of the bridge found it. */
  readonly ingress: string;
  /** When the bridge took the question, in ISO 8601; absent in the record of an event that asked nothing. */
  readonly admittedAt?: string | undefined;
}

interface Observation {
  readonly question: Question;
  readonly said: Readonly<Record<Said["kind"], Map<string, Said>>>;
  readonly tasks: Set<string>;
  readonly audit: AuditLine[];
  /** Place of the first request about it among all requests that reached the agent. */
  firstCall: number | undefined;
}

export interface Verdict {
  /** Questions without an end that is visible and on record. */
  readonly open: readonly Question[];
  readonly answered: number;
  /** Questions that ended without an answer, with a notice or because they were redacted. */
  readonly ended: number;
  /** Questions that no transaction brought. */
  readonly byCatchup: number;
  /** Questions that the homeserver delivered after a later one of their room, which so came first. */
  readonly overtaken: number;
  readonly violations: readonly string[];
}

export class Oracle {
  readonly #observations = new Map<string, Observation>();
  readonly #byToken = new Map<string, Observation>();
  /** What was said and belongs to no question so far. */
  readonly #strays = new Map<string, Said>();
  /** Messages of people that are no question, such as `!cancel`: each bridge in the room may refuse it by one notice. */
  readonly #asides = new Map<string, Map<string, Said>>();
  /** Notices that reply to nothing, of a room as a whole. */
  readonly #roomNotices = new Map<RoomId, Map<string, Said>>();
  readonly #calls = new Map<string, number>();
  /** Questions in the order of their room. */
  readonly #orders = new Map<RoomId, string[]>();
  #audit: AuditLine[] = [];
  #tasks: { readonly token: string; readonly id: string }[] = [];

  asked(question: Question): void {
    const observation: Observation = {
      question,
      said: { answer: new Map(), agent_question: new Map(), notice: new Map() },
      tasks: new Set(),
      audit: [],
      firstCall: undefined,
    };
    this.#observations.set(question.event, observation);
    this.#byToken.set(question.token, observation);
  }

  aside(event: string): void {
    this.#asides.set(event, new Map());
  }

  /** An event of a room, in the order in which the homeserver of the bridge shows them. */
  inRoom(room: RoomId, event: string): void {
    const order = this.#orders.get(room) ?? [];
    this.#orders.set(room, order);
    order.push(event);
  }

  said(said: Said): void {
    this.#strays.set(said.event, said);
  }

  /** A request about a question reached the agent. */
  called(token: string): void {
    if (!this.#calls.has(token)) this.#calls.set(token, this.#calls.size);
  }

  task(token: string, id: string): void {
    this.#tasks.push({ token, id });
  }

  audited(line: AuditLine): void {
    this.#audit.push(line);
  }

  judge(): Verdict {
    this.#assign();
    const violations = [...this.#strays.values()].map(
      ({ sender, event, room, body }) =>
        `${sender} said ${event} in ${room}, which replies to no question: ${body.slice(0, 80)}`,
    );
    for (const [event, notices] of this.#asides) {
      const senders = new Set([...notices.values()].map(({ sender }) => sender));
      if (notices.size > senders.size)
        violations.push(`${event} is refused more than once: ${shown(notices.values())}`);
    }
    const all = [...this.#observations.values()];
    for (const observation of all) violations.push(...wrongWith(observation));
    const { wrong, overtaken } = this.#outOfOrder();
    violations.push(...wrong);
    const open = all.filter((observation) => !this.#hasEnded(observation)).map(({ question }) => question);
    const answered = all.filter(({ said }) => said.answer.size > 0).length;
    const byCatchup = all.filter(isByCatchup).length;
    return { open, answered, ended: all.length - open.length - answered, byCatchup, overtaken, violations };
  }

  /** What was seen before the question was known to be asked belongs to it, too. */
  #assign(): void {
    for (const said of [...this.#strays.values()]) {
      const { to, kind, event, room } = said;
      const place =
        to === undefined
          ? kind === "notice"
            ? this.#noticesOf(room)
            : undefined
          : (this.#observations.get(to)?.said[kind] ??
            (kind === "notice" ? this.#asides.get(to) : undefined));
      if (place === undefined) continue;
      place.set(event, said);
      this.#strays.delete(event);
    }
    this.#audit = this.#audit.filter(
      (line) => this.#observations.get(line.event)?.audit.push(line) === undefined,
    );
    this.#tasks = this.#tasks.filter(
      ({ token, id }) => this.#byToken.get(token)?.tasks.add(id) === undefined,
    );
    for (const [token, observation] of this.#byToken) observation.firstCall ??= this.#calls.get(token);
  }

  #noticesOf(room: RoomId): Map<string, Said> {
    const notices = this.#roomNotices.get(room) ?? new Map();
    this.#roomNotices.set(room, notices);
    return notices;
  }

  /** Visible in the room, and recorded in the audit stream. */
  #hasEnded({ question, said, audit }: Observation): boolean {
    // A question that is redacted before the bridge sees it asks nothing.
    if (question.kind === "redact") return true;
    if (said.answer.size + said.notice.size > 0) return audit.length > 0;
    // A key that does not come is told once an episode, to the whole room.
    return audit.some(isExpired) && (this.#roomNotices.get(question.room)?.size ?? 0) > 0;
  }

  /**
   * Questions of a room whose first request reached the agent before that of an earlier one. One that was caught up
   * takes its place when it is found. One that the homeserver delivered later than its successor, since the delivery of
   * its own transaction failed, is overtaken by the homeserver, not by the bridge: it is counted.
   */
  #outOfOrder(): { readonly wrong: readonly string[]; readonly overtaken: number } {
    const wrong: string[] = [];
    let overtaken = 0;
    for (const [room, events] of this.#orders) {
      let last: Observation | undefined;
      for (const event of events) {
        const observation = this.#observations.get(event);
        if (observation?.firstCall === undefined || observation.audit.length === 0) continue;
        if (last?.firstCall !== undefined && observation.firstCall < last.firstCall) {
          if (admittedAt(observation) < admittedAt(last)) {
            overtaken += 1;
            continue;
          }
          wrong.push(
            `${nameOf(observation)} reached the agent before ${nameOf(last)}, which is earlier in ${room}`,
          );
        }
        if (!isByCatchup(observation)) last = observation;
      }
    }
    return { wrong, overtaken };
  }
}

/** NaN where it is not known, which is neither before nor after anything. */
const admittedAt = ({ audit }: Observation) => Date.parse(audit[0]?.admittedAt ?? "");
const isExpired = ({ outcome }: AuditLine) => outcome === "expired";
const isByCatchup = ({ audit }: Observation) => audit.some(({ ingress }) => ingress === "recovered");

function nameOf({ question: { token, kind, event, room, round } }: Observation): string {
  return `${kind} ${token} of round ${round} (${event} in ${room})`;
}

function shown(list: Iterable<Said>): string {
  return [...list]
    .map(({ event, sender, body }) => `${event} of ${sender}: ${body.slice(0, 80).replaceAll("\n", " ")}`)
    .join("; ");
}

function wrongWith(observation: Observation): string[] {
  const { said, tasks, audit, question, firstCall } = observation;
  const wrong: string[] = [];
  const complain = (what: string) => wrong.push(`${nameOf(observation)} ${what}`);
  for (const [kind, list] of Object.entries(said)) {
    if (list.size > 1) complain(`has ${list.size} of ${kind}: ${shown(list.values())}`);
  }
  const isAnswered = said.answer.size > 0;
  if (isAnswered && said.notice.size > 0)
    complain(`has an answer and the notice ${shown(said.notice.values())}`);
  for (const { body, event } of said.answer.values()) {
    if (!body.includes(question.answer)) complain(`has the answer to another question: ${event}`);
  }
  if (tasks.size > 1) complain(`has ${tasks.size} tasks at the agent: ${[...tasks].join(", ")}`);
  // Without it the order in which the questions of a room reached the agent would go unseen.
  if (isAnswered && firstCall === undefined) complain("has an answer, and no request about it was seen");
  if (isAnswered && tasks.size === 0) complain("has an answer, and the agent has no task of it");
  if (audit.length > 1) complain(`has ${audit.length} records in the audit stream`);
  for (const { outcome, reason } of audit) {
    const isVisible = isAnswered || said.notice.size > 0;
    if (isVisible && (outcome === "completed") !== isAnswered) {
      complain(`is ${outcome} (${reason}) in the audit stream, and has ${said.answer.size} answers`);
    }
  }
  return wrong;
}
