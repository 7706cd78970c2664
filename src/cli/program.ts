// The list of the CLI's commands, by product, and the command line that is built of it. Invariant: only a summary stands
// here; a command's code is loaded when it is called, so that `--help` and every other command start without it.
import { Command, Help, type Option } from "commander";
import manifest from "../../package.json" with { type: "json" };
import type { CamelCase, CommandModule } from "./lib/command.ts";
import { EXIT_CODES_HELP } from "./lib/exit-codes.ts";
import { printError, printText } from "./lib/output.ts";

export interface CommandEntry {
  readonly path: readonly [string, ...string[]];
  readonly summary: string;
  readonly load: () => Promise<CommandModule>;
}

/** Commands that begin with the same words; a command may be a group as well: `bridge` runs, `bridge init` prepares. */
type CommandGroup = Readonly<ReturnType<typeof group>>;

/** Stands among the verbs for the command that a group is by itself; its summary is the group's. */
const OWN = { "": "" } as const;

type Export<Verb extends string> = Verb extends "" ? "command" : `${CamelCase<Verb>}Command`;

/** The commands of one file, which exports each as `verbCommand`. A group of several files has its summary from the first. */
function group<Verb extends string = "">(
  words: string,
  summary: string,
  load: () => Promise<{ readonly [One in Verb as Export<One>]: CommandModule }>,
  verbs = OWN as Readonly<Record<Verb, string>>,
) {
  const path = words.split(" ") as [string, ...string[]];
  const commands = Object.entries<string>(verbs).map(([verb, said]): CommandEntry => {
    const name = `${verb} command`.trim().replaceAll(/[- ](.)/g, (_, letter: string) => letter.toUpperCase());
    return {
      ...{ path: verb === "" ? path : [...path, verb], summary: verb === "" ? summary : said },
      load: async () => ((await load()) as Readonly<Record<string, CommandModule>>)[name] as CommandModule,
    };
  });
  return { words: path, summary, commands };
}

export const PRODUCTS: Readonly<Record<string, readonly CommandGroup[]>> = {
  "The bridge:": [
    group("bridge", "run the bridge of one organisation, or prepare it", () => import("./bridge.ts"), {
      init: "write the folder a new bridge starts from",
      registration: "write the appservice registration",
      migrate: "bring the database to this release's version",
      "accept-restored-database": "have bridges start on a database that was put back",
      ...OWN,
    }),
    group("doctor", "show what is wrong with a bridge, and a hint for each", () => import("./doctor.ts")),
    group(
      "delegation",
      "the questions that a bridge has taken, and what each waits for",
      () => import("./delegation.ts"),
      {
        list: "list open delegations",
        show: "show one delegation",
        cancel: "end a delegation without an answer",
        retry: "try a delegation now, with a new deadline",
      },
    ),
    group("envelope", "encrypted events that wait for their keys", () => import("./envelope.ts"), {
      list: "list those that wait",
      show: "show one encrypted event",
      cancel: "end the wait for a key",
      retry: "look for a key now",
    }),
    group("room", "rooms with open questions", () => import("./room.ts"), {
      list: "list rooms with open questions",
      show: "show why a room waits, since when, behind what",
    }),
    { words: ["ghost"], summary: "the devices by which ghosts read and write encrypted rooms", commands: [] },
    group(
      "ghost device",
      "a ghost's device: what is known of it, and a new one in its place",
      () => import("./ghost-device.ts"),
      {
        status: "show whether each device takes part, and why not",
        reset: "replace a device that has stopped",
      },
    ),
  ],
  "Federation control:": [
    group(
      "federation",
      "the partners of one organisation, on five planes",
      () => import("./federation/work-tree.ts"),
      {
        init: "write the folder that it starts from",
        render: "write what the registry means for every plane",
        check: "check a registry and its renders, without any server",
      },
    ),
    group("federation", "", () => import("./federation/contain.ts"), {
      contain: "close a partner off, with a record",
      restore: "take a containment back, with a record",
    }),
    group("federation", "", () => import("./federation/observe.ts"), {
      status: "show who is contained and what is in force",
      probe: "probe a partner from inside and from outside",
      evidence: "write or check an evidence pack about a partner",
    }),
    group("federation", "", () => import("./federation/report-abuse.ts"), {
      "report-abuse": "file a report of abuse",
    }),
    group("reconcile", "bring every plane to what the repository says", () => import("./reconcile.ts")),
    group(
      "offboarding",
      "the removal of one partner, signed by both organisations",
      () => import("./offboarding/record.ts"),
      {
        open: "begin the private record of a removal, open its run",
        show: "show a private record, and what it lacks",
      },
    ),
    group("offboarding", "", () => import("./offboarding/run.ts"), {
      plan: "show what each remaining step would change",
      status: "show where a removal is, and the next command",
      waive: "accept that something could not be reached",
      abort: "end a removal without completing it",
      run: "do every step that needs nobody else",
      next: "close the next plane, and show that it is closed",
      sign: "sign what was shown here or stated by the other",
      export: "write what is signed here for the other one",
      import: "take in what the other one has signed",
      complete: "state that the removal is whole, after probes",
    }),
    group("offboarding", "", () => import("./offboarding/purge.ts"), {
      purge: "show what can be purged of a partner, and purge it",
    }),
    group("readmission", "a removed partner comes back, as a new one", () => import("./readmission.ts"), {
      open: "retire all that was pinned, and take in new keys",
      plan: "show what each remaining step would change",
      next: "open the next plane, and see that it is open",
      status: "show where a re-admission is, and what is next",
    }),
    group(
      "agent",
      "one agent: added, removed; its identity rotated, pinned, withdrawn",
      () => import("./agent.ts"),
      {
        add: "add an agent of ours to our bridge",
        remove: "remove such an agent from our bridge",
        rotate: "give an agent of ours a new signing key",
        pin: "pin a partner's agent to its new key",
        withdraw: "withdraw one agent from use with a partner",
      },
    ),
  ],
  "Servers that federation control writes files for:": [
    group("gateway", "run the A2A gateway of one organisation", () => import("./gateway.ts")),
    group("issuer", "run the one-machine token issuer, or make its keys", () => import("./issuer.ts"), {
      keygen: "make the issuer's signing keys",
      ...OWN,
    }),
  ],
  "Signed files:": [
    group("card", "signed Agent Cards", () => import("./card.ts"), {
      verify: "verify cards against trusted keys, a line a card",
      sign: "sign a card with an ES256 key",
      lint: "check that every known verifier would agree on a card",
      fetch: "fetch a card and show what pinning it would mean",
      keygen: "make a key pair to sign cards with",
    }),
    group("records", "keys for offboarding records", () => import("./records.ts"), {
      keygen: "make a key pair to sign offboarding records with",
    }),
    group("verify", "verify the record of a removal, offline", () => import("./verify.ts")),
  ],
};

export function commandsOf(products: typeof PRODUCTS): readonly CommandEntry[] {
  return Object.values(products).flatMap((groups) => groups.flatMap(({ commands }) => commands));
}

export const COMMANDS = commandsOf(PRODUCTS);

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
export function entryOf(entries: readonly CommandEntry[], words: readonly string[]) {
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
  if (called !== undefined) (await called.load())(commandAt(program, called.path, ""));
  return program;
}
