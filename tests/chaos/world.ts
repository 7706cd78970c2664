// The rooms in which questions are asked, those who ask, and everything that the oracle is shown of them.
// Invariants: the rooms are looked at before the agent's tasks, and those before the audit stream, so that what follows
// from something is never seen missing; what was in the rooms before the run is no part of it.
import * as z from "zod";
import { tailOf } from "../../lab/ask/logs.ts";
import { ghostFor } from "../../lab/endpoints.ts";
import { requireRoom } from "../../lab/seed/seed-file.ts";
import { systemClock } from "../../src/domain/clock.ts";
import type { EventId, GhostMxid, RoomId } from "../../src/domain/identifiers.ts";
import { Serial } from "../../src/runtime/concurrency.ts";
import { eventually, questionTo } from "../support/encrypted-bridge.ts";
import type { Deployment } from "./deployment.ts";
import { AgentJournal } from "./journal.ts";
import type { Oracle, Said } from "./oracle.ts";
import { Person } from "./people.ts";
import { type Ask, ROOMS } from "./schedule.ts";
import { answerTo, questionAbout, tokenOf } from "./topics.ts";

interface AskedRoom {
  readonly id: RoomId;
  readonly isEncrypted: boolean;
  /** Whether people of the other organisation are in it. */
  readonly isShared: boolean;
}

const AuditRecord = z.object({
  audit_id: z.string(),
  schema: z.string(),
  outcome: z.string(),
  terminal_reason: z.string(),
  event_id: z.string(),
  ingress: z.string(),
  admitted_at: z.string().optional(),
});

const ENCRYPTION = {
  type: "m.room.encryption",
  state_key: "",
  content: { algorithm: "m.megolm.v1.aes-sha2" },
};

export class World {
  readonly oracle: Oracle;
  readonly #alice: Person;
  /** Of the other organisation: shows the shared rooms as its homeserver has them. */
  readonly #bob: Person;
  readonly #ghost: GhostMxid;
  readonly #devices: readonly string[];
  readonly #rooms: readonly AskedRoom[];
  readonly #journal: AgentJournal;
  readonly #audit: () => string[];
  readonly #observing = new Serial();
  readonly #saidHere = new Map<string, Said>();
  readonly #saidThere = new Map<string, Said>();

  private constructor(
    oracle: Oracle,
    people: readonly [Person, Person],
    ghost: GhostMxid,
    devices: readonly string[],
    rooms: readonly AskedRoom[],
    deployment: Deployment,
  ) {
    this.oracle = oracle;
    [this.#alice, this.#bob] = people;
    this.#ghost = ghost;
    this.#devices = devices;
    this.#rooms = rooms;
    const { lab } = deployment;
    this.#journal = new AgentJournal(lab.paths.organisation("org-b").agent);
    this.#audit = tailOf(lab.paths.organisation("org-a").auditFile);
  }

  static async open(deployment: Deployment, oracle: Oracle): Promise<World> {
    const { lab, seed } = deployment;
    const alice = await Person.logIn(lab, seed, "org-a");
    const bob = await Person.logIn(lab, seed, "org-b");
    const ghost = ghostFor(lab, "org-a", "org-b");
    const rooms = await Promise.all(
      Array.from({ length: ROOMS }, async (_, number): Promise<AskedRoom> => {
        const isEncrypted = number % 2 === 1;
        if (number < 2) {
          const { roomId } = requireRoom(seed, "org-a", isEncrypted ? "encrypted" : "plain");
          return { id: roomId as RoomId, isEncrypted, isShared: true };
        }
        const id = await alice.createRoom({
          preset: "private_chat",
          invite: [ghost],
          initial_state: isEncrypted ? [ENCRYPTION] : [],
        });
        await eventually("the ghost joins", async () =>
          (await alice.members(id)).includes(ghost) ? true : undefined,
        );
        return { id, isEncrypted, isShared: false };
      }),
    );
    await Promise.all([alice.begin(), bob.begin()]);
    return new World(oracle, [alice, bob], ghost, await alice.devicesOf(ghost), rooms, deployment);
  }

  /** Asks, and does what follows; resolves when the homeserver has accepted all of it. */
  async ask(round: number, place: number, { room: number, kind, topic, thenMs }: Ask): Promise<void> {
    const room = this.#rooms[number];
    if (room === undefined) throw new TypeError("there is no such room");
    const { id, isEncrypted } = room;
    const token = tokenOf(round, place);
    const content = questionTo(questionAbout(kind, token, topic), this.#ghost);
    const isWithheld = kind === "late_key" || kind === "withheld_key";
    const event = await this.#alice.send(id, isEncrypted, content, isWithheld);
    const answer = answerTo(kind, topic);
    this.oracle.asked({ token, kind, round, room: id, ghost: this.#ghost, event, answer });
    await systemClock.sleep(thenMs);
    if (kind === "cancel") this.oracle.aside(await this.#reply(room, event, "!cancel"));
    else if (kind === "redact") await this.#alice.redact(id, event);
    else if (kind === "late_key") await this.#alice.release();
  }

  #reply(room: AskedRoom, to: string, body: string): Promise<EventId> {
    const content = { msgtype: "m.text", body, "m.relates_to": { "m.in_reply_to": { event_id: to } } };
    return this.#alice.send(room.id, room.isEncrypted, content);
  }

  /** Answers the agent's questions, and shows the oracle what can be seen now. */
  observe(): Promise<void> {
    return this.#observing.run(() => this.#observe());
  }

  async #observe(): Promise<void> {
    const roomOf = (id: RoomId) => this.#rooms.find((room) => room.id === id);
    const [here, there] = await Promise.all([this.#alice.poll(), this.#bob.poll()]);
    for (const { room, event_id } of here.events) if (roomOf(room)) this.oracle.inRoom(room, event_id);
    for (const said of here.said) {
      const room = roomOf(said.room);
      if (room === undefined) continue;
      this.#saidHere.set(said.event, said);
      this.oracle.said(said);
      if (said.kind === "agent_question") this.oracle.aside(await this.#reply(room, said.event, "1"));
    }
    for (const said of there.said) this.#saidThere.set(said.event, said);
    for (const { id, token } of this.#journal.read()) this.oracle.task(token, id);
    for (const line of this.#audit()) {
      const record = AuditRecord.safeParse(JSON.parse(line));
      if (!record.success) continue;
      const {
        audit_id: id,
        event_id: event,
        outcome,
        terminal_reason: reason,
        ingress,
        admitted_at: admittedAt,
      } = record.data;
      this.oracle.audited({ id, event, outcome, reason, ingress, admittedAt });
    }
  }

  /** People of the other organisation were away for a while: what was said before need not be shown to them. */
  partnershipWasOpened(): void {
    this.#saidHere.clear();
  }

  /** What ghosts said in shared rooms that the other homeserver shows otherwise, or does not show yet. */
  differences(): readonly string[] {
    const shared = this.#rooms.filter(({ isShared }) => isShared).map(({ id }) => id);
    return [...this.#saidHere.values()]
      .filter(({ room, event, body }) => shared.includes(room) && this.#saidThere.get(event)?.body !== body)
      .map(({ event, room }) => `the other homeserver does not show ${event} of ${room} as this one does`);
  }

  /** What is wrong with the ghost's device, which stays the same. */
  async changedDevices(): Promise<readonly string[]> {
    const now = await this.#alice.devicesOf(this.#ghost);
    const isSame = now.length === 1 && this.#devices.length === 1 && now[0] === this.#devices[0];
    return isSame ? [] : [`${this.#ghost} had the devices ${this.#devices.join()} and has ${now.join()}`];
  }

  close(): void {
    this.#alice.close();
    this.#bob.close();
  }
}
