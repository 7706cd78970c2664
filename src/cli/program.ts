// Builds the command line from the list of commands.
// Invariant: only the command that is called is loaded.
import { Command, Help, type Option } from "commander";
import manifest from "../../package.json" with { type: "json" };
import { type CommandEntry, commandsOf, PRODUCTS } from "./commands.ts";
import { EXIT_CODES_HELP } from "./lib/exit-codes.ts";
import { printError, printText } from "./lib/output.ts";

const WORDS_HELP = `
Words:
  partner    another organisation, by its server name or the name of its file in registry/partners
  planes     where a partner is let in: 1 transport, 2 rooms, 3 border, 4 card, 5 gateway.
             They are closed in the order 5, 4, 2, 3, 1, and opened in reverse, or from 1 to 5 by a re-admission.
  registry   the files of the organisation's git repository that say who is a partner
  head       the newest commit of that repository's branch; in force once every plane has been brought to it
  work tree  a clone of that repository, with files to edit
  probe.yaml what a partner has lent, so that one can probe as the partner does
docs/glossary.md defines more; docs/operating has a page for each thing that an operator does.`;

const GROUPS_WITH_WORDS: ReadonlySet<string> = new Set(["agent", "federation", "offboarding", "readmission"]);

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
    .sort((left, right) => right.path.length - left.path.length)[0];
}

const PLAIN_HELP = new Help();

function describeOption(option: Option): string {
  const said = PLAIN_HELP.optionDescription(option);
  return option.mandatory ? `${said} (required)` : said;
}

function commandAt(program: Command, words: readonly string[], summary: string): Command {
  return words.reduce((parent, word, index) => {
    const known = parent.commands.find((one) => one.name() === word);
    if (known !== undefined) return known;
    const added = parent.command(word).description(summary);
    if (index === 0 && GROUPS_WITH_WORDS.has(word)) added.addHelpText("after", WORDS_HELP);
    return added;
  }, program);
}

export async function buildProgram(words: readonly string[], products = PRODUCTS): Promise<Command> {
  const program = new Command("drawbridge")
    .description(
      "Joins Matrix rooms to A2A agents (the bridge), and admits and removes partner organisations (federation control). Each can be used without the other.",
    )
    .version(manifest.version)
    .addHelpText("afterAll", EXIT_CODES_HELP)
    .showHelpAfterError("hint: Run it with --help to see its usage.")
    .configureHelp({ optionDescription: describeOption })
    .configureOutput({ writeOut: printText, writeErr: printError })
    .exitOverride();
  for (const [heading, groups] of Object.entries(products)) {
    program.commandsGroup(heading);
    for (const group of groups) {
      commandAt(program, group.words, group.summary);
      for (const { path, summary } of group.commands) commandAt(program, path, summary);
    }
  }
  const called = entryOf(commandsOf(products), words);
  if (called !== undefined) (await called.load()).register(commandAt(program, called.path, ""));
  return program;
}
