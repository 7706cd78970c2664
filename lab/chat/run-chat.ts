// The terminal's side of a conversation with an agent: reads lines from standard input, prompts on a terminal, and ends at
// `!quit`, the end of the input or Ctrl+C. Invariant: a device that was logged in for an encrypted room is logged out.
import { createInterface } from "node:readline";
import type { GhostMxid, RoomId } from "../../src/domain/identifiers.ts";
import { EncryptingUser } from "../encrypting-user/encrypting-user.ts";
import { type Lab, SOURCES } from "../lab.ts";
import type { CompleteOrganisation } from "../organisations.ts";
import { paletteFor } from "../progress.ts";
import { personOf, type Seed, type SeededRoom } from "../seed/seed-file.ts";
import { CHAT_COMMANDS, Chat, type Client } from "./chat.ts";

export interface ChatRequest {
  readonly lab: Lab;
  readonly seed: Seed;
  /** The organisation whose first user asks. */
  readonly from: CompleteOrganisation;
  /** Of the agent that is asked. */
  readonly ghost: GhostMxid;
  readonly room: SeededRoom;
  /** Asked before the first line is read. */
  readonly question: string | undefined;
}

const PROMPT = "> ";
const CLEAR_LINE = "\r\u001b[K";

/** @throws DrawbridgeError `homeserver_refused`, `homeserver_unavailable` */
export async function runChat(request: ChatRequest): Promise<void> {
  const { lab, seed, from, room } = request;
  if (!room.encrypted) return await talk(request, personOf(lab, seed, from));
  const user = await EncryptingUser.logIn(lab, seed, from, SOURCES);
  try {
    await talk(request, user);
  } finally {
    await user.logOut();
  }
}

async function talk({ ghost, room, question }: ChatRequest, client: Client): Promise<void> {
  const { stdin: input, stdout: output } = process;
  const isTerminal = input.isTTY === true && output.isTTY === true;
  const palette = paletteFor(output);
  const ended = new AbortController();
  let prompt = () => {};
  const print = (text: string) => {
    output.write(isTerminal ? `${CLEAR_LINE}${text}\n` : `${text}\n`);
    prompt();
  };
  const { signal } = ended;
  const chat = new Chat({ client, ghost, palette, print, signal, room: room.roomId as RoomId });
  await chat.begin();
  print(`${client.userId} asks ${ghost} in ${room.alias}`);
  print(palette.dim(CHAT_COMMANDS));

  const lines = createInterface({
    input,
    terminal: isTerminal,
    prompt: PROMPT,
    ...(isTerminal && { output }),
  });
  // From here on lines are kept: what a pipe brings while the first question is answered comes before anybody reads it.
  const typed = lines[Symbol.asyncIterator]();
  // On a terminal Ctrl+C and Ctrl+D close it; the sync that is under way is not waited for.
  lines.once("close", () => isTerminal && ended.abort());
  if (isTerminal) prompt = () => lines.prompt(true);
  const listening = isTerminal ? chat.listen(() => false) : undefined;
  // What fails while nobody waits for it is reported below.
  listening?.catch(() => lines.close());
  const write = async (line: string) => {
    const isCancel = line.trim() === "!cancel";
    if (!isTerminal) {
      await chat.listen(() => chat.isIdle || (isCancel && chat.isShown));
      print(`${PROMPT}${line}`);
    }
    const goesOn = await chat.write(line);
    prompt();
    return goesOn;
  };
  try {
    if (question !== undefined) await write(question);
    prompt();
    for await (const line of typed) if (!(await write(line))) break;
    if (!isTerminal) {
      await chat.listen(() => chat.isIdle);
      await chat.listenToTheEnd();
    }
  } finally {
    lines.close();
    ended.abort();
    await listening;
  }
}
