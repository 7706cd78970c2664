// Builds the command line from the list of commands.
// Invariant: only the command that is called is loaded.
import { readFileSync } from "node:fs";
import { Command, Help, type Option } from "commander";
import { type CommandEntry, GROUPS } from "../commands.ts";
import { EXIT_CODES_HELP } from "./command.ts";
import { WORDS_HELP } from "./words.ts";

function packageVersion(): string {
  const manifest: unknown = JSON.parse(
    readFileSync(new URL("../../../package.json", import.meta.url), "utf8"),
  );
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

const PLAIN_HELP = new Help();

/** What commander says of an option, and whether it is needed; that a flag is off by default goes without saying. */
function describeOption(option: Option): string {
  const said = PLAIN_HELP.optionDescription(option).replace(/ \(default: false\)$/, "");
  return option.mandatory ? `${said} (required)` : said;
}

/** Groups of commands about partners. */
const WITH_WORDS: ReadonlySet<string> = new Set(["agent", "federation", "offboarding", "readmission"]);

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
    .showHelpAfterError("hint: Run it with --help to see its usage.")
    .configureHelp({ optionDescription: describeOption })
    .exitOverride();

  const called = entryOf(entries, words);
  const groups = new Map<string, Command>();
  for (const entry of entries) {
    let command = program;
    for (const [index, word] of entry.path.entries()) {
      const path = entry.path.slice(0, index + 1).join(" ");
      // A command may be a group as well: `bridge` runs, `bridge init` prepares.
      const isEntry = index === entry.path.length - 1;
      const described = GROUPS[path] ?? entry.summary;
      const known = groups.get(path);
      command = known ?? command.command(word).description(described);
      if (known === undefined && WITH_WORDS.has(path)) command.addHelpText("after", WORDS_HELP);
      groups.set(path, command);
      if (isEntry && entry === called) (await entry.load()).command.register(command);
    }
  }
  return program;
}
