// Builds the command line from the list of commands.
// Invariant: only the command that is called is loaded.
import { readFileSync } from "node:fs";
import { Command } from "commander";
import { EXIT_CODES_HELP } from "./command.ts";
import { type CommandEntry, GROUPS } from "./commands.ts";

function packageVersion(): string {
  const manifest: unknown = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8"));
  return String((manifest as { version?: unknown }).version);
}

/** The entry that the words of a command line name; `help card verify` names the same as `card verify --help`. */
export function entryOf(
  entries: readonly CommandEntry[],
  words: readonly string[],
): CommandEntry | undefined {
  const firstOption = words.findIndex((word) => word.startsWith("-"));
  const named = words.slice(0, firstOption < 0 ? undefined : firstOption).filter((word) => word !== "help");
  // The longest: `bridge` runs, `bridge init` prepares.
  return entries
    .filter((entry) => entry.path.every((word, index) => named[index] === word))
    .reduce<CommandEntry | undefined>(
      (longest, entry) =>
        longest !== undefined && longest.path.length >= entry.path.length ? longest : entry,
      undefined,
    );
}

/**
 * The program for one command line.
 * @param words the arguments after the program's name.
 */
export async function buildProgram(
  entries: readonly CommandEntry[],
  words: readonly string[],
): Promise<Command> {
  const program = new Command("drawbridge")
    .description("Joins Matrix rooms to A2A agents across organisations.")
    .version(packageVersion())
    .addHelpText("after", EXIT_CODES_HELP)
    .showHelpAfterError("mend: Run it with --help to see its usage.")
    .exitOverride();

  const called = entryOf(entries, words);
  const groups = new Map<string, Command>();
  for (const entry of entries) {
    const [first, ...rest] = entry.path;
    // A one-word command may be a group as well: `bridge` runs, `bridge init` prepares.
    const group = groups.get(first) ?? program.command(first).description(GROUPS[first] ?? entry.summary);
    groups.set(first, group);
    const command = rest.length > 0 ? group.command(rest.join("-")).description(entry.summary) : group;
    if (entry === called) (await entry.load()).command.register(command);
  }
  return program;
}
