// fed:logs: what the programs of the lab have written, each line with its program's name.
import { existsSync } from "node:fs";
import { systemClock } from "../../src/domain/clock.ts";
import { readIfPresent } from "../../src/runtime/write-file.ts";
import { tailOf } from "../ask/logs.ts";
import type { Lab } from "../lab.ts";
import { isComplete, PROGRAMS, parseOrganisation, unitName } from "../organisations.ts";
import { type Palette, paletteFor } from "../progress.ts";
import { namedLab, parseOptions, usageError } from "./options.ts";

const USAGE = `
Usage: ./task fed:logs [ORG] [PROGRAM] [-f] [--lines N] [--name LAB]

What the programs have written. ORG is org-a, org-b, org-c or org-d; PROGRAM is homeserver, issuer, agent,
gateway, bridge or reconciler; "supervisor" in place of both is the lab's own.

  -f, --follow  go on until interrupted
  --lines N     so many last lines of each; 20 when absent
`;

interface Source {
  readonly name: string;
  readonly file: string;
}

const FOLLOW_POLL_MS = 200;

export async function logs(args: readonly string[]): Promise<number> {
  const specs = { follow: { type: "boolean", short: "f" }, lines: { type: "string" } } as const;
  const options = parseOptions(args, USAGE, specs, 2);
  if (options === undefined) return 0;
  const count = Number(options.text("lines") ?? "20");
  if (!Number.isInteger(count) || count < 0) {
    throw usageError("--lines must be a number", USAGE);
  }
  const palette = paletteFor(process.stdout);
  // A reader such as `head` may close its end early; that is no failure.
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code === "EPIPE") process.exit(0);
    throw error;
  });
  const sources = sourcesOf(namedLab(options), options.positionals);
  const print = (source: Source, line: string) => process.stdout.write(`${label(source, palette)}${line}\n`);
  const tails = sources.map((source) => ({ source, tail: tailOf(source.file) }));
  for (const source of sources) {
    const lines = (readIfPresent(source.file) ?? "").split("\n").filter((line) => line !== "");
    for (const line of lines.slice(lines.length - Math.min(count, lines.length))) print(source, line);
  }
  while (options.flag("follow")) {
    for (const { source, tail } of tails) for (const line of tail()) print(source, line);
    await systemClock.sleep(FOLLOW_POLL_MS);
  }
  return 0;
}

function label(source: Source, palette: Palette): string {
  return palette.dim(`${source.name.padEnd(16)} `);
}

/** The bridge writes a log of its own; lines from before that file is open are in its output. */
function sourcesOf(lab: Lab, words: readonly string[]): Source[] {
  const all: Source[] = [
    { name: "supervisor", file: lab.paths.log("supervisor") },
    ...lab.organisations.flatMap((organisation) => [
      ...PROGRAMS.map((program) => ({
        name: unitName(organisation, program),
        file: lab.paths.log(unitName(organisation, program)),
      })),
      ...(isComplete(organisation)
        ? [{ name: unitName(organisation, "bridge"), file: lab.paths.organisation(organisation).bridgeLog }]
        : []),
    ]),
  ];
  const wanted = words.map((word) => parseOrganisation(word) ?? word);
  const found = all.filter(
    ({ name, file }) => existsSync(file) && wanted.every((word) => name.split("/").includes(word)),
  );
  if (found.length > 0) return found;
  throw usageError(`no program of the lab is called ${words.join(" ")}`, USAGE);
}
