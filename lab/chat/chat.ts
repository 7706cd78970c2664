// A conversation with an agent in the terminal: what the person writes goes to the room, what the agent says about it is
// printed, its progress included.
// Invariants: a line is a command, or the answer to the agent's open question, or a question, which goes on in the agent's
// context; what others say in the room is not shown; without a terminal the next line is read when the agent has answered
// the last one, has asked something back or has ended it, and `!cancel` as soon as it shows that it works.

import type { GhostMxid, RoomId } from "../../src/domain/identifiers.ts";
import { printableText } from "../../src/domain/printable.ts";
import type { MatrixUser } from "../matrix-user.ts";
import type { Palette } from "../progress.ts";
import { type Said, saidBy } from "./said.ts";

export type Client = Pick<MatrixUser, "userId" | "send" | "sync">;

export interface ChatOptions {
  readonly client: Client;
  readonly room: RoomId;
  readonly ghost: GhostMxid;
  readonly palette: Palette;
  /** Prints whole lines. */
  readonly print: (text: string) => void;
  /** Ends the waits. */
  readonly signal: AbortSignal;
}

export const CHAT_COMMANDS =
  "!cancel cancels the question, !agents lists the agents, !help says more, !quit ends.";

const SYNC_WAIT_MS = 1_000;

export class Chat {
  readonly #options: ChatOptions;
  #position: string | undefined;
  /** The person's messages, and the status messages about them. */
  readonly #own = new Set<string>();
  /** The question that the agent works on, and whether it has said so. */
  #open: { readonly event: string; isShown: boolean } | undefined;
  /** The agent's question that waits for an answer. */
  #asked: Said | undefined;
  /** What the next question replies to, so that it goes on in the agent's context. */
  #answer: string | undefined;
  /** How often something was said; a sync that brings nothing leaves it as it is. */
  #heard = 0;

  constructor(options: ChatOptions) {
    this.#options = options;
  }

  async begin(): Promise<void> {
    this.#position = (await this.#options.client.sync(this.#options.room, undefined, 0)).next;
  }

  /** Whether the agent has nothing to do: a line can be written that it has not been asked for. */
  get isIdle(): boolean {
    return this.#open === undefined || this.#asked !== undefined;
  }

  /** Whether a cancellation would reach something that the person knows of. */
  get isShown(): boolean {
    return this.#open?.isShown === true;
  }

  /** Sends what the person wrote; false when it ends the conversation. */
  async write(line: string): Promise<boolean> {
    const text = line.trim();
    if (text === "!quit") return false;
    if (text === "") return true;
    const { ghost } = this.#options;
    if (text === "!cancel") {
      if (this.#open === undefined) this.#options.print("There is no question to cancel.");
      else await this.#say(text, [], this.#open.event);
      return true;
    }
    if (text.startsWith("!")) {
      this.#open = { event: await this.#say(text, []), isShown: false };
      return true;
    }
    if (this.#asked !== undefined) {
      const { event } = this.#asked;
      this.#asked = undefined;
      await this.#say(text, [], event);
      return true;
    }
    const question = await this.#say(`${ghost}: ${text}`, [ghost], this.#answer);
    this.#open = { event: question, isShown: false };
    return true;
  }

  /** Prints what comes, until `isEnough` or the signal. */
  async listen(isEnough: () => boolean): Promise<void> {
    const { client, room, signal } = this.#options;
    while (!isEnough() && !signal.aborted) {
      const { next, events } = await client.sync(room, this.#position, SYNC_WAIT_MS);
      this.#position = next;
      for (const event of events) {
        const said = saidBy(event);
        if (said !== undefined && this.#concerns(said)) this.#hear(said);
      }
    }
  }

  /** Prints what still comes, until nothing comes any more: the rest of a long answer, its files. */
  async listenToTheEnd(): Promise<void> {
    let heard = -1;
    await this.listen(() => {
      const isQuiet = heard === this.#heard;
      heard = this.#heard;
      return isQuiet;
    });
  }

  async #say(body: string, users: readonly string[], replyTo?: string): Promise<string> {
    const event = await this.#options.client.send(this.#options.room, {
      msgtype: "m.text",
      body,
      "m.mentions": { user_ids: users },
      ...(replyTo !== undefined && { "m.relates_to": { "m.in_reply_to": { event_id: replyTo } } }),
    });
    this.#own.add(event);
    return event;
  }

  /** Whether it is the agent's word about what the person wrote; a command is answered by any one of the room's agents. */
  #concerns({ sender, kind, about, thread }: Said): boolean {
    const isFromAgent = sender === this.#options.ghost;
    if (!isFromAgent && !(kind === "notice" && this.#open?.event === about)) return false;
    return [about, thread].some((one) => one !== undefined && this.#own.has(one));
  }

  #hear(said: Said): void {
    const { kind, event, about, thread } = said;
    this.#heard += 1;
    this.#show(said);
    if (kind === "status") this.#own.add(event);
    const isOfOpen = this.#open !== undefined && [about, thread].includes(this.#open.event);
    if (this.#open !== undefined && (kind === "status" || kind === "question")) this.#open.isShown = true;
    if (kind === "question") this.#asked = said;
    if (kind === "answer") this.#answer = event;
    if ((kind === "answer" || kind === "notice") && isOfOpen) {
      this.#open = undefined;
      this.#asked = undefined;
    }
  }

  #show({ kind, text }: Said): void {
    const { print, palette } = this.#options;
    const [sign, colour] = SIGNS[kind] ?? ["", "bold"];
    const indent = sign.replace(/\S/gu, " ");
    const lines = printableText(text).split("\n");
    print(lines.map((line, index) => palette[colour](`${index === 0 ? sign : indent}${line}`)).join("\n"));
  }
}

const SIGNS: Readonly<Partial<Record<Said["kind"], readonly [sign: string, colour: keyof Palette]>>> = {
  answer: ["", "cyan"],
  question: ["? ", "bold"],
  status: ["· ", "dim"],
  edit: ["· ", "dim"],
  notice: ["! ", "red"],
  file: ["file ", "cyan"],
};
