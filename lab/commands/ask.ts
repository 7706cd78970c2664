// fed:ask: asks an agent as a person of the lab does, and shows the answer and its time line; or talks with it.
import { renderJson } from "../../src/cli/lib/output.ts";
import { parseDurationMs } from "../../src/domain/duration.ts";
import { ask } from "../ask/ask.ts";
import { timelineOf } from "../ask/timeline.ts";
import { runChat } from "../chat/run-chat.ts";
import { agentsOf } from "../endpoints.ts";
import {
  COMPLETE_ORGANISATIONS,
  type CompleteOrganisation,
  isComplete,
  parseOrganisation,
  partnerOf,
} from "../organisations.ts";
import { paletteFor } from "../progress.ts";
import { renderQuestion, renderTimeline, renderViews } from "../proof/render.ts";
import { roomOf, type Seed, type SeededRoom } from "../seed/seed-file.ts";
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
  --to ORG|AGENT  the agent of that organisation, or an agent by its name in agents.yaml; when absent the
                  partner's
  --room ROOM     the room that this organisation created, a room's ID or alias; when absent the room of the
                  organisation asked
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
  const from = organisationOf(options, "from") ?? "org-b";
  const publisher = publisherOf(options, from);
  const room = chosenRoom(options, seed, publisher);
  const timeoutMs = parseDurationMs(options.text("timeout") ?? "60s");
  if (timeoutMs === undefined) throw wrong("--timeout must be a duration such as 90s");
  // Shown before the question: the error of a refused question would not name the containment that is its cause.
  const closed = await closedPartners(lab);
  if (closed !== undefined) process.stderr.write(`${closedNote(closed)}\n\n`);
  const explain = (error: unknown) => {
    throw explainRefusal(lab.name, error, closed);
  };
  if (isChat) {
    await runChat({ lab, seed, from, publisher, room, question }).catch(explain);
    return 0;
  }
  const asked = { lab, seed, from, publisher, room, timeoutMs, ...(question !== undefined && { question }) };
  const result = await ask(asked).catch(explain);
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

function organisationOf(options: ParsedOptions, name: string): CompleteOrganisation | undefined {
  const text = options.text(name);
  if (text === undefined) return undefined;
  const organisation = parseOrganisation(text);
  if (organisation === undefined || !isComplete(organisation)) {
    throw wrong(`--${name} must be ${COMPLETE_ORGANISATIONS.join(" or ")}`);
  }
  return organisation;
}

function publisherOf(options: ParsedOptions, from: CompleteOrganisation): CompleteOrganisation {
  const text = options.text("to");
  if (text === undefined) return partnerOf(from);
  const byAgent = agentsOf(from).find(({ agentId }) => agentId === text);
  return byAgent?.publisher ?? organisationOf(options, "to") ?? from;
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
