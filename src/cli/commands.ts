// The list of the CLI's commands. Invariant: only a summary stands here; a command's code is loaded when
// it is called, so that `--help` and every other command start without it.
import type { CommandModule } from "./lib/command.ts";

export interface CommandEntry {
  /** The words of the command, such as `["card", "verify"]`. */
  readonly path: readonly [string, ...string[]];
  readonly summary: string;
  load(): Promise<{ readonly command: CommandModule }>;
}

/** What the first word of a two-word command is about. */
export const GROUPS: Readonly<Record<string, string>> = {
  agent: "the identity of one agent: rotated, pinned, withdrawn",
  bridge: "run the bridge of one organisation, or prepare it",
  card: "signed Agent Cards",
  federation: "the partners of one organisation, on five planes",
  ghost: "the devices by which ghosts read and write encrypted rooms",
  "ghost device": "a ghost's device: what is known of it, and a new one in its place",
  gateway: "run the A2A gateway of one organisation, or render its files",
  offboarding: "the removal of one partner, signed by both organisations",
  readmission: "a removed partner comes back, as a new one",
  records: "keys for offboarding records",
  issuer: "run the one-machine token issuer, or make its keys",
};

// One line a command, in the order of --help:
//   { path: ["card", "verify"], summary: "…", load: () => import("./card/verify.ts") },
export const COMMANDS: readonly CommandEntry[] = [
  {
    path: ["bridge", "init"],
    summary: "write the folder a new bridge starts from",
    load: () => import("./bridge/init.ts"),
  },
  {
    path: ["bridge", "registration"],
    summary: "write the appservice registration for the homeserver",
    load: () => import("./bridge/registration.ts"),
  },
  {
    path: ["card", "verify"],
    summary: "verify cards against trusted keys, a line a card",
    load: () => import("./card/verify.ts"),
  },
  {
    path: ["card", "sign"],
    summary: "sign a card with an ES256 key",
    load: () => import("./card/sign.ts"),
  },
  {
    path: ["card", "lint"],
    summary: "check that every known verifier would agree on a card",
    load: () => import("./card/lint.ts"),
  },
  {
    path: ["card", "fetch"],
    summary: "fetch a card and show what pinning it would mean",
    load: () => import("./card/fetch.ts"),
  },
  {
    path: ["card", "keygen"],
    summary: "make a key pair to sign cards with",
    load: () => import("./card/keygen.ts"),
  },
  {
    path: ["ghost", "device", "status"],
    summary: "tell of each ghost's device whether it takes part, and why not",
    load: () => import("./ghost-device/status.ts"),
  },
  {
    path: ["ghost", "device", "reset"],
    summary: "give a ghost a new device in place of one that has stopped",
    load: () => import("./ghost-device/reset.ts"),
  },
  {
    path: ["gateway"],
    summary: "run the A2A gateway",
    load: () => import("./gateway/run.ts"),
  },
  {
    path: ["gateway", "render"],
    summary: "write Envoy's files without running it",
    load: () => import("./gateway/render.ts"),
  },
  {
    path: ["issuer"],
    summary: "run the one-machine token issuer",
    load: () => import("./issuer/run.ts"),
  },
  {
    path: ["issuer", "keygen"],
    summary: "make the issuer's signing keys",
    load: () => import("./issuer/keygen.ts"),
  },
  {
    path: ["offboarding", "open"],
    summary: "begin the private record of a removal, and open its run",
    load: () => import("./offboarding/open.ts"),
  },
  {
    path: ["offboarding", "show"],
    summary: "show a private record, and what it lacks",
    load: () => import("./offboarding/show.ts"),
  },
  {
    path: ["offboarding", "set"],
    summary: "fill in one field of a private record",
    load: () => import("./offboarding/set.ts"),
  },
  {
    path: ["offboarding", "purge"],
    summary: "show what can be purged of a partner's data, and purge it",
    load: () => import("./offboarding/purge.ts"),
  },
  {
    path: ["offboarding", "plan"],
    summary: "tell what each remaining step changes, interrupts and restarts",
    load: () => import("./offboarding/plan.ts"),
  },
  {
    path: ["offboarding", "next"],
    summary: "close the plane whose turn it is, and show that it is closed",
    load: () => import("./offboarding/next.ts"),
  },
  {
    path: ["offboarding", "status"],
    summary: "tell where a removal is, what waits for whom, and the next command",
    load: () => import("./offboarding/status.ts"),
  },
  {
    path: ["offboarding", "sign"],
    summary: "sign what was shown here, and what the other organisation stated",
    load: () => import("./offboarding/sign.ts"),
  },
  {
    path: ["offboarding", "export"],
    summary: "write what is signed here for the other organisation",
    load: () => import("./offboarding/export.ts"),
  },
  {
    path: ["offboarding", "import"],
    summary: "take in what the other organisation has signed",
    load: () => import("./offboarding/import.ts"),
  },
  {
    path: ["offboarding", "waive"],
    summary: "answer for something that could not be reached",
    load: () => import("./offboarding/waive.ts"),
  },
  {
    path: ["offboarding", "complete"],
    summary: "look at every plane again, and state that the removal is whole",
    load: () => import("./offboarding/complete.ts"),
  },
  {
    path: ["offboarding", "abort"],
    summary: "end a removal without completing it",
    load: () => import("./offboarding/abort.ts"),
  },
  {
    path: ["offboarding", "verify"],
    summary: "verify the record of a removal of this deployment",
    load: () => import("./offboarding/verify.ts"),
  },
  {
    path: ["verify"],
    summary: "verify the record of a removal, offline",
    load: () => import("./verify.ts"),
  },
  {
    path: ["records", "keygen"],
    summary: "make a key pair to sign offboarding records with",
    load: () => import("./records/keygen.ts"),
  },
  {
    path: ["federation", "render"],
    summary: "write what the registry means for every plane",
    load: () => import("./federation/render.ts"),
  },
  {
    path: ["federation", "check"],
    summary: "check a registry and its renders, without any server",
    load: () => import("./federation/check.ts"),
  },
  {
    path: ["federation", "contain"],
    summary: "close a partner off, with a record",
    load: () => import("./federation/contain.ts"),
  },
  {
    path: ["federation", "restore"],
    summary: "take a containment back, with a record",
    load: () => import("./federation/restore.ts"),
  },
  {
    path: ["federation", "status"],
    summary: "tell who is contained and what is in force",
    load: () => import("./federation/status.ts"),
  },
  {
    path: ["reconcile"],
    summary: "bring every plane to what the repository says",
    load: () => import("./reconcile.ts"),
  },
  {
    path: ["federation", "probe"],
    summary: "look at a partner from inside, and from outside as the partner",
    load: () => import("./federation/probe.ts"),
  },
  {
    path: ["federation", "evidence"],
    summary: "write an evidence pack about a partner, or check one",
    load: () => import("./federation/evidence.ts"),
  },
  {
    path: ["federation", "report-abuse"],
    summary: "take in a report of abuse, by references alone",
    load: () => import("./federation/report-abuse.ts"),
  },
  {
    path: ["agent", "rotate"],
    summary: "give an agent of ours a new signing key, and prove the old one fails",
    load: () => import("./agent/rotate.ts"),
  },
  {
    path: ["agent", "pin"],
    summary: "pin a partner's agent to its new key, and retire the old one",
    load: () => import("./agent/pin.ts"),
  },
  {
    path: ["agent", "withdraw"],
    summary: "take one agent away between us and a partner",
    load: () => import("./agent/withdraw.ts"),
  },
  {
    path: ["readmission", "open"],
    summary: "retire all that was pinned, take in what is fresh, record the gate",
    load: () => import("./readmission/open.ts"),
  },
  {
    path: ["readmission", "plan"],
    summary: "show what each step that is left would change, and the rooms it touches",
    load: () => import("./readmission/plan.ts"),
  },
  {
    path: ["readmission", "next"],
    summary: "open the next plane, and see that it is open",
    load: () => import("./readmission/next.ts"),
  },
  {
    path: ["readmission", "status"],
    summary: "tell where a re-admission is, and the next command",
    load: () => import("./readmission/status.ts"),
  },
  // After the commands of its group: the first entry whose words match is the one that is called.
  { path: ["bridge"], summary: "run the bridge of one organisation", load: () => import("./bridge/run.ts") },
  {
    path: ["doctor"],
    summary: "tell what is wrong with a bridge, and the hint",
    load: () => import("./doctor.ts"),
  },
];
