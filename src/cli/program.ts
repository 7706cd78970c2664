// The list of the CLI's commands, by product, and the command line that is built of it. Invariant: only a summary stands
// here; a command's code is loaded when it is called, so that `--help` and every other command start without it.
import { Command, Help, type Option } from "commander";
import manifest from "../../package.json" with { type: "json" };
import type { CamelCase, CommandModule } from "./lib/command.ts";
import { printError, printText } from "./lib/command.ts";
import { EXIT_CODES_HELP } from "./lib/exit-codes.ts";

export interface CommandEntry {
  readonly path: readonly [string, ...string[]];
  readonly summary: string;
  readonly load: () => Promise<CommandModule>;
}

/** Commands that begin with the same words; a command may be a group as well: `bridge` runs, `bridge init` prepares. */
type CommandGroup = Readonly<ReturnType<typeof group>>;

type Verbs<Verb extends string> = {
  readonly [One in Verb]: readonly [
    summary: string,
    load: () => Promise<{ readonly [Name in `${CamelCase<One>}Command`]: CommandModule }>,
  ];
};

/** The verbs of a group, each exported as `verbCommand`; and, in `own`, the command that the group is by itself. */
function group<Verb extends string = never>(
  words: string,
  summary: string,
  verbs: Verbs<Verb>,
  own?: () => Promise<{ readonly command: CommandModule }>,
) {
  const path = words.split(" ") as [string, ...string[]];
  const loaded = Object.entries(verbs) as [string, readonly [string, () => Promise<unknown>]][];
  const commands = loaded.map(([verb, [said, load]]): CommandEntry => {
    const name = `${verb}Command`.replaceAll(/-(.)/g, (_, letter: string) => letter.toUpperCase());
    const one = async () => ((await load()) as Record<string, CommandModule>)[name] as CommandModule;
    return { path: [...path, verb], summary: said, load: one };
  });
  if (own !== undefined) commands.push({ path, summary, load: async () => (await own()).command });
  return { words: path, summary, commands };
}

export const PRODUCTS: Readonly<Record<string, readonly CommandGroup[]>> = {
  "The bridge:": [
    group(
      "bridge",
      "run the bridge of one organisation, or prepare it",
      {
        init: ["write the folder a new bridge starts from", () => import("./bridge/init.ts")],
        registration: ["write the appservice registration", () => import("./bridge/registration.ts")],
        migrate: ["bring the database to this release's version", () => import("./bridge/migrate.ts")],
        "accept-restored-database": [
          "have bridges start on a database that was put back",
          () => import("./bridge/accept-restored-database.ts"),
        ],
      },
      () => import("./bridge/run.ts"),
    ),
    group("doctor", "show what is wrong with a bridge, and a hint for each", {}, () => import("./doctor.ts")),
    group("delegation", "the questions that a bridge has taken, and what each waits for", {
      list: ["list open delegations", () => import("./delegation.ts")],
      show: ["show one delegation", () => import("./delegation.ts")],
      cancel: ["end a delegation without an answer", () => import("./delegation.ts")],
      retry: ["try a delegation now, with a new deadline", () => import("./delegation.ts")],
    }),
    group("envelope", "encrypted events that wait for their keys", {
      list: ["list those that wait", () => import("./envelope.ts")],
      show: ["show one encrypted event", () => import("./envelope.ts")],
      cancel: ["end the wait for a key", () => import("./envelope.ts")],
      retry: ["look for a key now", () => import("./envelope.ts")],
    }),
    group("room", "rooms with open questions", {
      list: ["list rooms with open questions", () => import("./room.ts")],
      show: ["show why a room waits, since when, behind what", () => import("./room.ts")],
    }),
    group("ghost", "the devices by which ghosts read and write encrypted rooms", {}),
    group("ghost device", "a ghost's device: what is known of it, and a new one in its place", {
      status: ["show whether each device takes part, and why not", () => import("./ghost-device.ts")],
      reset: ["replace a device that has stopped", () => import("./ghost-device.ts")],
    }),
  ],
  "Federation control:": [
    group("federation", "the partners of one organisation, on five planes", {
      init: ["write the folder that it starts from", () => import("./federation/init.ts")],
      render: ["write what the registry means for every plane", () => import("./federation/render.ts")],
      check: ["check a registry and its renders, without any server", () => import("./federation/check.ts")],
      contain: ["close a partner off, with a record", () => import("./federation/contain-or-restore.ts")],
      restore: ["take a containment back, with a record", () => import("./federation/contain-or-restore.ts")],
      status: ["show who is contained and what is in force", () => import("./federation/status.ts")],
      probe: ["probe a partner from inside and from outside", () => import("./federation/probe.ts")],
      evidence: ["write or check an evidence pack about a partner", () => import("./federation/evidence.ts")],
      "report-abuse": ["file a report of abuse", () => import("./federation/report-abuse.ts")],
    }),
    group("reconcile", "bring every plane to what the repository says", {}, () => import("./reconcile.ts")),
    group("offboarding", "the removal of one partner, signed by both organisations", {
      open: ["begin the private record of a removal, open its run", () => import("./offboarding/open.ts")],
      show: ["show a private record, and what it lacks", () => import("./offboarding/show.ts")],
      plan: ["show what each remaining step would change", () => import("./offboarding/plan.ts")],
      status: ["show where a removal is, and the next command", () => import("./offboarding/status.ts")],
      waive: ["accept that something could not be reached", () => import("./offboarding/waive.ts")],
      abort: ["end a removal without completing it", () => import("./offboarding/abort.ts")],
      run: ["do every step that needs nobody else", () => import("./offboarding/run.ts")],
      next: ["close the next plane, and show that it is closed", () => import("./offboarding/next.ts")],
      sign: ["sign what was shown here or stated by the other", () => import("./offboarding/sign.ts")],
      export: ["write what is signed here for the other one", () => import("./offboarding/export.ts")],
      import: ["take in what the other one has signed", () => import("./offboarding/import.ts")],
      complete: ["state that the removal is whole, after probes", () => import("./offboarding/complete.ts")],
      purge: ["show what can be purged of a partner, and purge it", () => import("./offboarding/purge.ts")],
    }),
    group("readmission", "a removed partner comes back, as a new one", {
      open: ["retire all that was pinned, and take in new keys", () => import("./readmission/open.ts")],
      plan: ["show what each remaining step would change", () => import("./readmission/plan.ts")],
      next: ["open the next plane, and see that it is open", () => import("./readmission/next.ts")],
      status: ["show where a re-admission is, and what is next", () => import("./readmission/status.ts")],
    }),
    group("agent", "one agent: added, removed; its identity rotated, pinned, withdrawn", {
      add: ["add an agent of ours to our bridge", () => import("./agent/add.ts")],
      remove: ["remove such an agent from our bridge", () => import("./agent/remove-or-withdraw.ts")],
      rotate: ["give an agent of ours a new signing key", () => import("./agent/rotate.ts")],
      pin: ["pin a partner's agent to its new key", () => import("./agent/pin.ts")],
      withdraw: ["withdraw one agent from use with a partner", () => import("./agent/remove-or-withdraw.ts")],
    }),
  ],
  "Servers that federation control writes files for:": [
    group("gateway", "run the A2A gateway of one organisation", {}, () => import("./gateway.ts")),
    group(
      "issuer",
      "run the one-machine token issuer, or make its keys",
      { keygen: ["make the issuer's signing keys", () => import("./issuer.ts")] },
      () => import("./issuer.ts"),
    ),
  ],
  "Signed files:": [
    group("card", "signed Agent Cards", {
      verify: ["verify cards against trusted keys, a line a card", () => import("./card/verify.ts")],
      sign: ["sign a card with an ES256 key", () => import("./card/sign.ts")],
      lint: ["check that every known verifier would agree on a card", () => import("./card/lint.ts")],
      fetch: ["fetch a card and show what pinning it would mean", () => import("./card/fetch.ts")],
      keygen: ["make a key pair to sign cards with", () => import("./card/keygen.ts")],
    }),
    group("records", "keys for offboarding records", {
      keygen: ["make a key pair to sign offboarding records with", () => import("./records.ts")],
    }),
    group("verify", "verify the record of a removal, offline", {}, () => import("./verify.ts")),
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
