// The list of the CLI's commands, by product. Invariant: only a summary stands here; a command's code is loaded when
// it is called, so that `--help` and every other command start without it.
import type { CommandModule } from "./lib/command.ts";

type Load = () => Promise<{ readonly command: CommandModule }>;

export interface CommandEntry {
  /** The words of the command, such as `["card", "verify"]`. */
  readonly path: readonly [string, ...string[]];
  readonly summary: string;
  readonly load: Load;
}

/** Commands that begin with the same words; a command may be a group as well: `bridge` runs, `bridge init` prepares. */
interface CommandGroup {
  readonly words: readonly [string, ...string[]];
  readonly summary: string;
  readonly commands: readonly CommandEntry[];
}

function group(
  words: string,
  summary: string,
  verbs: Readonly<Record<string, readonly [summary: string, load: Load]>>,
  own?: Load,
): CommandGroup {
  const path = words.split(" ") as [string, ...string[]];
  const commands = Object.entries(verbs).map(
    ([verb, [said, load]]): CommandEntry => ({ path: [...path, verb], summary: said, load }),
  );
  // After its verbs: the first entry whose words match is the one that is called.
  return {
    words: path,
    summary,
    commands: own === undefined ? commands : [...commands, { path, summary, load: own }],
  };
}

/** Groups by the heading under which `--help` lists them. */
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
      list: ["list open delegations", () => import("./delegation/list.ts")],
      show: ["show one delegation", () => import("./delegation/show.ts")],
      cancel: ["end a delegation without an answer", () => import("./delegation/cancel.ts")],
      retry: ["try a delegation now, with a new deadline", () => import("./delegation/retry.ts")],
    }),
    group("envelope", "encrypted events that wait for their keys", {
      list: ["list those that wait", () => import("./envelope/list.ts")],
      show: ["show one encrypted event", () => import("./envelope/show.ts")],
      cancel: ["end the wait for a key", () => import("./envelope/cancel.ts")],
      retry: ["look for a key now", () => import("./envelope/retry.ts")],
    }),
    group("room", "rooms with open questions", {
      list: ["list rooms with open questions", () => import("./room/list.ts")],
      show: ["show why a room waits, since when, behind what", () => import("./room/show.ts")],
    }),
    group("ghost", "the devices by which ghosts read and write encrypted rooms", {}),
    group("ghost device", "a ghost's device: what is known of it, and a new one in its place", {
      status: ["show whether each device takes part, and why not", () => import("./ghost-device/status.ts")],
      reset: ["replace a device that has stopped", () => import("./ghost-device/reset.ts")],
    }),
  ],
  "Federation control:": [
    group("federation", "the partners of one organisation, on five planes", {
      init: ["write the folder that it starts from", () => import("./federation/init.ts")],
      render: ["write what the registry means for every plane", () => import("./federation/render.ts")],
      check: ["check a registry and its renders, without any server", () => import("./federation/check.ts")],
      contain: ["close a partner off, with a record", () => import("./federation/contain.ts")],
      restore: ["take a containment back, with a record", () => import("./federation/restore.ts")],
      status: ["show who is contained and what is in force", () => import("./federation/status.ts")],
      probe: ["probe a partner from inside and from outside", () => import("./federation/probe.ts")],
      evidence: ["write or check an evidence pack about a partner", () => import("./federation/evidence.ts")],
      "report-abuse": ["file a report of abuse", () => import("./federation/report-abuse.ts")],
    }),
    group("reconcile", "bring every plane to what the repository says", {}, () => import("./reconcile.ts")),
    group("offboarding", "the removal of one partner, signed by both organisations", {
      open: ["begin the private record of a removal, open its run", () => import("./offboarding/open.ts")],
      show: ["show a private record, and what it lacks", () => import("./offboarding/show.ts")],
      set: ["fill in one field of a private record", () => import("./offboarding/set.ts")],
      plan: ["show what each remaining step would change", () => import("./offboarding/plan.ts")],
      run: ["do every step that needs nobody else", () => import("./offboarding/run.ts")],
      next: ["close the next plane, and show that it is closed", () => import("./offboarding/next.ts")],
      status: ["show where a removal is, and the next command", () => import("./offboarding/status.ts")],
      sign: ["sign what was shown here or stated by the other", () => import("./offboarding/sign.ts")],
      export: ["write what is signed here for the other one", () => import("./offboarding/export.ts")],
      import: ["take in what the other one has signed", () => import("./offboarding/import.ts")],
      waive: ["accept that something could not be reached", () => import("./offboarding/waive.ts")],
      purge: ["show what can be purged of a partner, and purge it", () => import("./offboarding/purge.ts")],
      complete: ["state that the removal is whole, after probes", () => import("./offboarding/complete.ts")],
      abort: ["end a removal without completing it", () => import("./offboarding/abort.ts")],
    }),
    group("readmission", "a removed partner comes back, as a new one", {
      open: ["retire all that was pinned, and take in new keys", () => import("./readmission/open.ts")],
      plan: ["show what each remaining step would change", () => import("./readmission/plan.ts")],
      next: ["open the next plane, and see that it is open", () => import("./readmission/next.ts")],
      status: ["show where a re-admission is, and what is next", () => import("./readmission/status.ts")],
    }),
    group("agent", "one agent: added, removed; its identity rotated, pinned, withdrawn", {
      add: ["add an agent of ours to our bridge", () => import("./agent/add.ts")],
      remove: ["remove such an agent from our bridge", () => import("./agent/remove.ts")],
      rotate: ["give an agent of ours a new signing key", () => import("./agent/rotate.ts")],
      pin: ["pin a partner's agent to its new key", () => import("./agent/pin.ts")],
      withdraw: ["withdraw one agent from use with a partner", () => import("./agent/withdraw.ts")],
    }),
  ],
  "Servers that federation control writes files for:": [
    group(
      "gateway",
      "run the A2A gateway of one organisation, or render its files",
      { render: ["write Envoy's files without running it", () => import("./gateway/render.ts")] },
      () => import("./gateway/run.ts"),
    ),
    group(
      "issuer",
      "run the one-machine token issuer, or make its keys",
      { keygen: ["make the issuer's signing keys", () => import("./issuer/keygen.ts")] },
      () => import("./issuer/run.ts"),
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
      keygen: ["make a key pair to sign offboarding records with", () => import("./records/keygen.ts")],
    }),
    group("verify", "verify the record of a removal, offline", {}, () => import("./verify.ts")),
  ],
};

export const COMMANDS: readonly CommandEntry[] = Object.values(PRODUCTS)
  .flat()
  .flatMap(({ commands }) => commands);
