// fed:ask: asks an agent as a person of the lab does, and shows the answer and its time line; or talks with it.
import { renderJson } from "../../src/cli/lib/command.ts";
import { parseDurationMs } from "../../src/domain/duration.ts";
import type { GhostMxid, RoomId } from "../../src/domain/identifiers.ts";
import { carriedAgents } from "../agents.ts";
import { ask } from "../ask/ask.ts";
import { renderQuestion, renderTimeline, renderViews } from "../ask/render.ts";
import { timelineOf } from "../ask/timeline.ts";
import { runChat } from "../chat/run-chat.ts";
import { ghostFor } from "../endpoints.ts";
import type { Lab } from "../lab.ts";
import {
  COMPLETE_ORGANISATIONS,
  type CompleteOrganisation,
  isComplete,
  parseOrganisation,
  partnerOf,
} from "../organisations.ts";
import { paletteFor } from "../progress.ts";
import { joinGhost } from "../seed/memberships.ts";
import { personOf, roomOf, type Seed, type SeededRoom } from "../seed/seed-file.ts";
import { closedNote, closedPartners, explainRefusal } from "../status/closed-partners.ts";
import {
  FLAG,
  namedLab,
  type ParsedOptions,
  parseOptions,
  runningSeed,
  TEXT,
  usageError,
} from "./options.ts";

const USAGE = `
Usage: ./task fed:ask "QUESTION" [--from ORG] [--to ORG|AGENT] [--room ORG|ROOM]
                      [--encrypted] [--timeout TIME] [--json]
       ./task fed:ask --chat ["QUESTION"] [--from ORG] [--to ORG|AGENT] [--room ORG|ROOM] [--encrypted]

Asks in a shared room, by mentioning the agent's ghost, and prints the answer with its time line.
With --chat it goes on: each line of standard input is a question, the answer to a question of the agent, or a
command: !cancel, !agents, !help, !quit. What the agent says is printed, its progress included.

  --from ORG      the organisation whose user asks; org-b when absent
  --to ORG|AGENT  the agent of that organisation, or an agent by its name in the agents.yaml of the one that asks,
                  also one that fed:agent has added, which is invited first; when absent the partner's
  --room ROOM     the room that this organisation created, a room's ID or alias; when absent the room of the
                  organisation asked, for an added agent that of the one that asks
  --encrypted     in the encrypted form of that organisation's room, with clients that encrypt; a room that
                  is named by its ID or alias is encrypted or not by itself
  --chat          talk with the agent; without a terminal the next line is read when the agent has answered the last
  --timeout TIME  how long to wait, such as 90s; 60s when absent
  --name LAB      the lab; "default" when absent
  --json          print the result as JSON

  0  the question was answered, or the conversation ended
  1  the agent was asked and has not answered; or the lab does not run
  2  there is no question, or the command line is wrong; nothing was asked
  3  there was no outcome in time, or a homeserver refused the question, such as while the partner is contained
`;

const wrong = (message: string) => usageError(message, USAGE);

export async function askTask(args: readonly string[]): Promise<number> {
  const specs = { from: TEXT, to: TEXT, room: TEXT, timeout: TEXT, encrypted: FLAG, json: FLAG, chat: FLAG };
  const options = parseOptions(args, USAGE, specs, 1);
  if (options === undefined) return 0;
  const [question] = options.positionals;
  const isChat = options.flag("chat");
  if (!isChat && (question === undefined || question.trim() === "")) throw wrong("there is no question");
  if (isChat && (options.flag("json") || options.text("timeout") !== undefined)) {
    throw wrong("--chat goes with neither --json nor --timeout");
  }
  const lab = namedLab(options);
  const seed = runningSeed(lab);
  const from = askerOf(options) ?? "org-b";
  const { publisher, addedGhost } = askedAgent(options, lab, from);
  const room = chosenRoom(options, seed, publisher);
  const timeoutMs = parseDurationMs(options.text("timeout") ?? "60s");
  if (timeoutMs === undefined) throw wrong("--timeout must be a duration such as 90s");
  // Shown before the question: the error of a refused question would not name the containment that is its cause.
  const closed = await closedPartners(lab);
  if (closed !== undefined) process.stderr.write(`${closedNote(closed)}\n\n`);
  const explain = (error: unknown) => {
    throw explainRefusal(lab.name, error, closed);
  };
  if (addedGhost !== undefined) {
    const people = { host: personOf(lab, seed, room.createdBy), guest: personOf(lab, seed, from) };
    await joinGhost(room.roomId as RoomId, people, addedGhost).catch(explain);
  }
  if (isChat) {
    const ghost = addedGhost ?? ghostFor(lab, from, publisher);
    await runChat({ lab, seed, from, ghost, room, question }).catch(explain);
    return 0;
  }
  const result = await ask({
    ...{ lab, seed, from, publisher, room, timeoutMs },
    ...(question !== undefined && { question }),
    ...(addedGhost !== undefined && { addedGhost }),
  }).catch(explain);
  const palette = paletteFor(process.stdout);
  process.stdout.write(
    options.flag("json")
      ? renderJson({ ...result, timeline: timelineOf(result, from, publisher) })
      : `${[
          ...renderQuestion(result, palette),
          "",
          ...renderViews(result, from, palette),
          "",
          ...renderTimeline(result, from, publisher, palette),
        ].join("\n")}\n`,
  );
  return result.audit.outcome === "completed" ? 0 : 1;
}

function askerOf(options: ParsedOptions): CompleteOrganisation | undefined {
  const text = options.text("from");
  if (text === undefined) return undefined;
  const organisation = parseOrganisation(text);
  if (organisation === undefined || !isComplete(organisation)) {
    throw wrong(`--from must be ${COMPLETE_ORGANISATIONS.join(" or ")}`);
  }
  return organisation;
}

function askedAgent(
  options: ParsedOptions,
  lab: Lab,
  from: CompleteOrganisation,
): { readonly publisher: CompleteOrganisation; readonly addedGhost?: GhostMxid } {
  const text = options.text("to");
  if (text === undefined) return { publisher: partnerOf(from) };
  const agents = carriedAgents(lab, from);
  const named = agents.find(({ agentId }) => agentId === text);
  if (named !== undefined) {
    const { publisher, ghost } = named;
    return publisher === undefined ? { publisher: from, addedGhost: ghost } : { publisher };
  }
  const organisation = parseOrganisation(text);
  if (organisation !== undefined && isComplete(organisation)) return { publisher: organisation };
  const names = agents.map(({ agentId }) => agentId).join(", ");
  throw wrong(
    `--to must be ${COMPLETE_ORGANISATIONS.join(" or ")}, or an agent of ${from}'s bridge: ${names}`,
  );
}

function chosenRoom(options: ParsedOptions, seed: Seed, publisher: CompleteOrganisation): SeededRoom {
  const text = options.text("room");
  const organisation = text === undefined ? publisher : parseOrganisation(text);
  const room =
    organisation !== undefined && isComplete(organisation)
      ? roomOf(seed, organisation, options.flag("encrypted") ? "encrypted" : "plain")
      : seed.rooms.find((candidate) => candidate.roomId === text || candidate.alias === text);
  if (room === undefined) throw wrong("--room names no room of the lab");
  return room;
}
