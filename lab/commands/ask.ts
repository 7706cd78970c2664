// fed:ask: asks an agent as a person of the lab does, and shows what came of it and when.
import { renderJson } from "../../src/cli/lib/output.ts";
import { systemClock, systemRandom } from "../../src/domain/clock.ts";
import { parseDurationMs } from "../../src/domain/duration.ts";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { ask } from "../ask/ask.ts";
import { timelineOf } from "../ask/timeline.ts";
import { agentsOf, ghostFor } from "../endpoints.ts";
import {
  COMPLETE_ORGANISATIONS,
  type CompleteOrganisation,
  isComplete,
  parseOrganisation,
  partnerOf,
} from "../organisations.ts";
import { paletteFor } from "../progress.ts";
import { renderQuestion, renderTimeline, renderViews } from "../proof/render.ts";
import { readSeed, roomOf, type Seed, type SeededRoom } from "../seed/seed.ts";
import { wayBack, wayBackNote, withWayBack } from "../status/closed-partners.ts";
import { liveSupervisor } from "../supervisor/client.ts";
import { namedLab, type ParsedOptions, parseOptions } from "./options.ts";

const USAGE = `
Usage: ./task fed:ask "QUESTION" [--from ORG] [--to ORG|AGENT] [--room ORG|ROOM]
                      [--encrypted] [--timeout TIME] [--json]

Asks in a shared room, by mentioning the agent's ghost, and prints the answer with its time line.

  --from ORG      whose user asks; org-b when absent
  --to ORG|AGENT  the agent of that organisation, or an agent by its name in agents.yaml; when absent the
                  partner's
  --room ROOM     the room that this organisation created, a room's ID or alias; when absent the room of the
                  organisation asked
  --encrypted     in the encrypted form of that organisation's room, with clients that encrypt; a room that
                  is named by its ID or alias says by itself whether it is encrypted
  --timeout TIME  how long to wait, such as 90s; 60s when absent
  --name LAB      the lab; "default" when absent
  --json          print what came of it as JSON

  0  the question was answered
  1  the agent was asked, and there is no answer of it; or the lab does not run
  2  there is no question, or the command line is wrong; nothing was asked
  3  nothing came of it in time, or a homeserver refused it, such as while the partner is contained or removed
`;

const wrong = (message: string) => new DrawbridgeError("usage", message, { hint: USAGE.trim() });

export async function askTask(args: readonly string[]): Promise<number> {
  const text = { type: "string" } as const;
  const flag = { type: "boolean" } as const;
  const specs = { from: text, to: text, room: text, timeout: text } as const;
  const options = parseOptions(args, USAGE, { ...specs, encrypted: flag, json: flag }, 1);
  if (options === undefined) return 0;
  const [question] = options.positionals;
  if (question === undefined || question.trim() === "") throw wrong("there is no question");
  const lab = namedLab(options);
  const seed = readSeed(lab);
  if (seed === undefined || liveSupervisor(lab) === undefined) {
    throw new DrawbridgeError("not_running", `the lab ${lab.name} is not running`, {
      hint: "Start it with ./task fed:up.",
    });
  }
  const from = organisationOf(options, "from") ?? "org-b";
  const publisher = publisherOf(options, from);
  const room = chosenRoom(options, seed, publisher);
  const timeoutMs = parseDurationMs(options.text("timeout") ?? "60s");
  if (timeoutMs === undefined) throw wrong("--timeout must be a duration such as 90s");
  const request = {
    lab,
    seed,
    from,
    ghost: ghostFor(lab, from, publisher),
    bridgeOf: from,
    publisher,
    room,
    question,
    timeoutMs,
  };
  // Said before the question: a refusal that follows from it is long, and its cause would be its last line.
  const closed = await wayBack(lab);
  if (closed !== undefined) process.stderr.write(`${wayBackNote(closed)}\n\n`);
  const result = await ask(request, { clock: systemClock, random: systemRandom }).catch((error) => {
    throw withWayBack(lab.name, error, closed);
  });
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
