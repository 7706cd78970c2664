// The lab's status as a table for people.
import { renderTable } from "../../src/cli/lib/command.ts";
import { NO_COLOURS, type Palette } from "../progress.ts";
import { programsOf } from "./collect.ts";
import { planesBehind } from "./federation.ts";
import type { FederationStatus, FedStatus, OrganisationStatus } from "./schema.ts";

/** The address of a program, for people. */
function addressOf(program: { readonly name: string; readonly url?: string }, clientUrl: string): string {
  if (program.name === "reconciler") return "-";
  return program.url ?? clientUrl;
}

export function renderStatus(status: FedStatus, palette: Palette = NO_COLOURS): string {
  const rows = [
    ["postgres", status.postgres.state, pid(status.postgres.pid), `127.0.0.1:${status.postgres.port}`],
  ];
  for (const [name, organisation] of Object.entries(status.organisations)) {
    for (const program of programsOf(organisation)) {
      const state = program.state === "ready" && !program.healthy ? "silent" : program.state;
      rows.push([
        `${name}/${program.name}`,
        state,
        pid(program.pid),
        addressOf(program, organisation.clientUrl),
      ]);
    }
  }
  const table = renderTable(["PROGRAM", "STATE", "PID", "ADDRESS"], rows).split("\n");
  const coloured = table.map((line, index) => {
    if (index === 0) return palette.bold(line);
    const state = rows[index - 1]?.[1] ?? "";
    return state === ""
      ? line
      : line.replace(state, (state === "ready" ? palette.green : palette.red)(state));
  });
  const lines = [
    `${palette.bold(`Lab ${status.name}`)} ${status.healthy ? palette.green("healthy") : palette.red(unwell(status))}   ${palette.dim(status.directory)}`,
    "",
    ...coloured,
  ];
  for (const [name, organisation] of Object.entries(status.organisations)) {
    lines.push(`${palette.bold(name)}  ${organisation.serverName}`);
    const [user] = organisation.users;
    if (user !== undefined) lines.push(`  user   ${user.userId}`);
    for (const room of organisation.rooms) lines.push(roomLine(room, palette));
    for (const ghost of organisation.bridge?.ghosts ?? []) lines.push(`  ghost  ${ghost.userId}`);
    if (organisation.federation !== undefined)
      lines.push(...federationLines(organisation.federation, palette));
  }
  for (const [one, other] of status.cutLinks) {
    lines.push("", palette.red(`The link between ${one} and ${other} is cut.`));
  }
  return `${lines.join("\n")}\n`;
}

function roomLine(room: OrganisationStatus["rooms"][number], { dim, red }: Palette): string {
  const { alias, roomId, left, replacedBy } = room;
  if (left === null) return `  room   ${alias}  ${dim(roomId)}`;
  if (replacedBy === null) return red(`  left   ${alias}  ${dim(roomId)}`);
  return `  room   ${replacedBy}  ${red("in place of")} ${alias}  ${dim(`${roomId}, which was left`)}`;
}

function federationLines(federation: FederationStatus, palette: Palette): string[] {
  const behind = planesBehind(federation);
  const state = behind.length === 0 ? "in force on all planes" : `not in force on ${behind.join(", ")}`;
  return [
    `  registry  ${federation.revision === null ? "none yet" : `${federation.revision.slice(0, 12)}  ${state}`}`,
    ...federation.containment.map(({ partner, serverName }) =>
      palette.red(`  contained  ${partner}, ${serverName}`),
    ),
    ...federation.removed.map(({ partner, serverName }) =>
      palette.red(`  removed  ${partner}, ${serverName}: every plane is declared closed`),
    ),
    ...federation.unfinished.map(({ what, serverName, since }) => {
      const task = what === "removal" ? "fed:offboard" : "fed:readmit";
      return palette.red(
        `  unfinished  ${what}, ${serverName}, since ${since}: ./task ${task} goes on with it`,
      );
    }),
  ];
}

function unwell(status: FedStatus): string {
  return status.supervisor.pid === null ? "not running" : "not healthy";
}

function pid(value: number | null): string {
  return value === null ? "-" : String(value);
}
