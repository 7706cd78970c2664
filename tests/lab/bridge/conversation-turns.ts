// A conversation of a person with the partner's agent in a shared room of a lab, as the person and somebody of the other
// organisation see it; and ten turns of one: two questions of the agent, a cancellation, a wait that runs out.
// Invariant: what the agent says counts in the order in which the person's homeserver gives it; each event once.
import assert from "node:assert/strict";
import { type Said, type SaidKind, saidBy } from "../../../lab/chat/said.ts";
import type { MatrixUser, RoomEvent } from "../../../lab/matrix-user.ts";
import { systemClock } from "../../../src/domain/clock.ts";
import type { EventId, GhostMxid, RoomId } from "../../../src/domain/identifiers.ts";

export type Client = Pick<MatrixUser, "userId" | "send" | "sync">;

const PATIENCE_MS = 180_000;
const SYNC_WAIT_MS = 500;

/** What one person sees of a room from now on. */
class View {
  readonly events: RoomEvent[] = [];
  readonly #client: Client;
  readonly #room: RoomId;
  #position: string | undefined;

  constructor(client: Client, room: RoomId) {
    this.#client = client;
    this.#room = room;
  }

  async sync(): Promise<void> {
    const { next, events } = await this.#client.sync(this.#room, this.#position, SYNC_WAIT_MS);
    this.#position = next;
    const known = new Set(this.events.map(({ event_id: id }) => id));
    this.events.push(...events.filter(({ event_id: id }) => !known.has(id)));
  }

  saidBy(sender: string): Said[] {
    return this.events.map(saidBy).filter((said) => said?.sender === sender) as Said[];
  }
}

export interface Relation {
  readonly replyTo?: string;
  readonly thread?: string;
}

export class LabConversation {
  readonly room: RoomId;
  readonly ghost: GhostMxid;
  /** What the person said, by turn; the first turn is 1. */
  readonly own: { readonly event: EventId; readonly text: string; readonly relation: Relation }[] = [];
  readonly #asker: Client;
  readonly #views: readonly View[];

  private constructor(asker: Client, partner: Client, room: RoomId, ghost: GhostMxid) {
    this.room = room;
    this.ghost = ghost;
    this.#asker = asker;
    this.#views = [new View(asker, room), new View(partner, room)];
  }

  static async begin(
    asker: Client,
    partner: Client,
    room: RoomId,
    ghost: GhostMxid,
  ): Promise<LabConversation> {
    const conversation = new LabConversation(asker, partner, room, ghost);
    await Promise.all(conversation.#views.map((view) => view.sync()));
    return conversation;
  }

  async say(text: string, relation: Relation = {}): Promise<void> {
    const { replyTo, thread } = relation;
    const isCommand = text.startsWith("!");
    const relates = {
      ...(thread !== undefined && { rel_type: "m.thread", event_id: thread }),
      ...(replyTo !== undefined && { "m.in_reply_to": { event_id: replyTo } }),
    };
    const event = await this.#asker.send(this.room, {
      msgtype: "m.text",
      body: isCommand || replyTo !== undefined ? text : `${this.ghost}: ${text}`,
      "m.mentions": isCommand || replyTo !== undefined ? {} : { user_ids: [this.ghost] },
      ...(Object.keys(relates).length > 0 && { "m.relates_to": relates }),
    });
    this.own.push({ event, text, relation });
  }

  /** The event of a turn. */
  turn(number: number): EventId {
    return this.own[number - 1]?.event ?? assert.fail(`there was no turn ${number}`);
  }

  /** What the agent has said, as the person sees it, or as the other organisation does. */
  said(viewer: "asker" | "partner" = "asker"): readonly Said[] {
    return this.#views[viewer === "asker" ? 0 : 1]?.saidBy(this.ghost) ?? [];
  }

  /** Whether every message of the agent came encrypted. */
  isSealed(): boolean {
    return this.#views.every(({ events }) =>
      events
        .filter(({ sender, type }) => sender === this.ghost && type === "m.room.message")
        .every(({ encrypted }) => encrypted === true),
    );
  }

  /** Waits until both people see something that the agent says. */
  async until(what: string, is: (said: Said) => boolean): Promise<Said> {
    const deadline = systemClock.now() + PATIENCE_MS;
    for (;;) {
      const found = this.said().find(is);
      const partners = this.said("partner");
      if (found !== undefined && partners.some(({ event }) => event === found.event)) return found;
      assert.ok(
        systemClock.now() < deadline,
        `nobody says ${what}; the agent said ${JSON.stringify([this.said(), partners], null, 1)}`,
      );
      await Promise.all(this.#views.map((view) => view.sync()));
    }
  }

  /** Waits for the agent's word to a turn. */
  about(turn: number, kind: SaidKind, text: RegExp): Promise<Said> {
    const event = this.turn(turn);
    return this.until(
      `${kind} ${text}`,
      (said) => said.kind === kind && said.about === event && text.test(said.text),
    );
  }

  /** Waits until the status message of a turn says something, in its first form or in a later one. */
  async status(turn: number, text: RegExp): Promise<void> {
    const { event } = await this.about(turn, "status", /./);
    await this.until(
      `the status ${text}`,
      (said) =>
        (said.event === event || (said.kind === "edit" && said.about === event)) && text.test(said.text),
    );
  }
}

export interface Turn {
  readonly title: string;
  readonly say: (conversation: LabConversation) => Promise<void>;
  readonly outcome: (conversation: LabConversation) => Promise<unknown>;
  /** Whether it takes so long that there is a status message, however busy the machine is. */
  readonly isLong?: true;
}

const READING = /Reading document \d of 4/;
const answered = (turn: number, text: RegExp) => (conversation: LabConversation) =>
  conversation.about(turn, "answer", text);

/** Of the agent of org B, the harbour's handbook. */
export const TEN_TURNS: readonly Turn[] = [
  {
    title: "A question",
    say: (one) => one.say("Which radio channel do I call for a bridge opening?"),
    outcome: answered(1, /VHF channel 12/),
  },
  {
    title: "A second one, as a reply to the answer",
    say: async (one) =>
      one.say("What does an opening outside hours cost?", {
        replyTo: (await one.about(1, "answer", /./)).event,
      }),
    outcome: answered(2, /85 marks/),
  },
  {
    title: "One that takes long",
    isLong: true,
    say: (one) => one.say("Survey the documents about the bridge keeper"),
    outcome: async (one) => {
      await one.status(3, READING);
      await one.about(3, "answer", /of 4\*\* documents/);
      await one.status(3, /^Done: the question is answered/);
    },
  },
  {
    title: "One about which the agent asks back",
    say: (one) => one.say("Let me choose a section about fees"),
    outcome: (one) => one.about(4, "question", /Which section do you want to read\?/),
  },
  {
    title: "The answer to that, by the number of an option",
    say: async (one) => one.say("2", { replyTo: (await one.about(4, "question", /./)).event }),
    outcome: answered(4, /./),
  },
  {
    title: "Another one that takes long",
    isLong: true,
    say: (one) => one.say("Survey the documents about tides"),
    outcome: (one) => one.status(6, READING),
  },
  {
    title: "Its cancellation",
    say: (one) => one.say("!cancel", { replyTo: one.turn(6) }),
    outcome: async (one) => {
      await one.about(6, "notice", /^I have canceled this question/);
      await one.status(6, /^This question was canceled/);
    },
  },
  {
    title: "A question of the agent that nobody answers in time",
    say: (one) => one.say("Let me choose a section about berths"),
    outcome: async (one) => {
      await one.about(8, "question", /Which section do you want to read\?/);
      await one.about(8, "notice", /nobody answered in time/);
    },
  },
  {
    title: "An answer with a file",
    say: (one) => one.say("What is known about the tidal range? Answer as a file"),
    outcome: async (one) => {
      await one.about(9, "answer", /in the file `answer\.md`/);
      await one.about(9, "file", /^answer\.md/);
    },
  },
  {
    title: "A question in a thread",
    say: (one) => one.say("How much clearance is under the closed span?", { thread: one.turn(1) }),
    outcome: async (one) => {
      const { thread } = await one.about(10, "answer", /4\.20 metres/);
      assert.equal(thread, one.turn(1));
    },
  },
];

/** What the agent has to say in ten turns, apart from status messages, each once; and how its delegations end. */
export const SAID_ONCE: Readonly<Partial<Record<SaidKind, number>>> = {
  answer: 6,
  question: 2,
  notice: 2,
  file: 1,
};
export const ENDS = [
  "answered",
  "answered",
  "answered",
  "answered",
  "sender_canceled",
  "input_wait_elapsed",
  "answered",
  "answered",
];

const withoutPorts = (text: string) => text.replace(/(org-[a-d]\.test):\d+/g, "$1");
const quoted = (text: string) =>
  withoutPorts(text)
    .trimEnd()
    .split("\n")
    .map((line) => `> ${line}`.trimEnd());

/** The conversation as a part of the documentation. What depends on the speed of the machine is left out of it. */
export function transcriptOf(conversation: LabConversation, turns: readonly Turn[]): string {
  const said = conversation.said();
  const lines: string[] = [];
  turns.forEach(({ title, isLong }, index) => {
    const own = conversation.own[index] ?? assert.fail();
    const { replyTo, thread } = own.relation;
    const how =
      thread !== undefined ? ", in the thread of turn 1" : replyTo !== undefined ? ", by a reply" : "";
    lines.push("", `## ${index + 1}. ${title}`, "", `**Alice**${how}:`, "", ...quoted(own.text));
    for (const one of said.filter(({ about }) => about === own.event)) {
      if (one.kind === "edit" || (one.kind === "status" && isLong !== true)) continue;
      const edits = said.filter(({ kind, about }) => kind === "edit" && about === one.event);
      const forms =
        one.kind === "status" ? [one, ...edits].map(shown).filter((text) => FORMS.test(text)) : [one.text];
      const [first = "", ...later] = new Set(forms);
      lines.push("", `**Agent**, ${LABELS[one.kind]}:`, "", ...quoted(first));
      for (const text of later) lines.push("", "edited to:", "", ...quoted(text));
    }
  });
  return `${lines.join("\n")}\n`;
}

/** Of the status message, what it says on any machine, however slow. */
const FORMS = /Reading|^Done|canceled/;

const LABELS: Readonly<Record<SaidKind, string>> = {
  message: "a message",
  answer: "the answer",
  question: "a question",
  status: "the status message",
  edit: "an edit",
  notice: "a notice",
  file: "a file",
};

/** Which document the agent reads at the moment of an edit depends on the machine. */
function shown({ text }: Said): string {
  return text.replace(/Reading document \d of 4: .*/, "Reading document … of 4: …");
}
