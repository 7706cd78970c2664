// How the lab's commands read their command lines, and find and lock the lab that they are about.
import { parseArgs } from "node:util";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { type Lab, readLab, SOURCES } from "../lab.ts";
import { labDirectory, labPaths } from "../layout.ts";
import { type CompleteOrganisation, isComplete, parseOrganisation, partnerOf } from "../organisations.ts";
import { type Progress, progressOn } from "../progress.ts";
import { readSeed, type Seed } from "../seed/seed-file.ts";
import { liveSupervisor } from "../supervisor/client.ts";
import { lockLab } from "./lifecycle.ts";

type OptionSpec = Readonly<Record<string, { readonly type: "string" | "boolean"; readonly short?: string }>>;

export interface ParsedOptions {
  readonly positionals: readonly string[];
  readonly flag: (name: string) => boolean;
  readonly text: (name: string) => string | undefined;
}

export const FLAG = { type: "boolean" } as const;
export const TEXT = { type: "string" } as const;
const COMMON: OptionSpec = { name: TEXT, help: { ...FLAG, short: "h" } };

/** Its hint shows the usage lines alone: the whole help would push the error out of sight. */
export function usageError(message: string, usage: string): DrawbridgeError {
  const [lines = ""] = usage.trim().split("\n\n");
  return new DrawbridgeError("usage", message, { hint: `${lines}\n       --help says more.` });
}

/**
 * Parses a command's arguments; undefined when help was requested, which is printed then.
 * @throws DrawbridgeError `usage`
 */
export function parseOptions(
  args: readonly string[],
  usage: string,
  options: OptionSpec = {},
  positionalsMax = 0,
): ParsedOptions | undefined {
  let parsed: ReturnType<typeof parseArgs>;
  try {
    parsed = parseArgs({
      args: [...args],
      options: { ...COMMON, ...options },
      allowPositionals: positionalsMax > 0,
    });
  } catch (error) {
    const message = error instanceof Error ? (error.message.split(". ")[0] ?? "") : "wrong arguments";
    throw usageError(message, usage);
  }
  if (parsed.values["help"] === true) {
    process.stdout.write(`${usage.trim()}\n`);
    return undefined;
  }
  if (parsed.positionals.length > positionalsMax) throw usageError("too many arguments", usage);
  return {
    positionals: parsed.positionals,
    flag: (name) => parsed.values[name] === true,
    text: (name) => {
      const value = parsed.values[name];
      return typeof value === "string" ? value : undefined;
    },
  };
}

/**
 * The organisation that an argument names, as `org-a`, `a` or by its server name; one that has all five planes.
 * @throws DrawbridgeError `usage`
 */
export function completeOrganisation(lab: Lab, named: string, usage: string): CompleteOrganisation {
  const byServer = lab.organisations.find((name) => lab.serverNames[name] === named);
  const organisation = byServer ?? parseOrganisation(named);
  if (organisation !== undefined && isComplete(organisation)) return organisation;
  throw usageError(`${named} is neither org-a nor org-b`, usage);
}

/**
 * A partner, and the organisation that acts on it: the one that `--org` names, or the other one.
 * @throws DrawbridgeError `usage`
 */
export function partiesOf(
  lab: Lab,
  named: string,
  options: ParsedOptions,
  usage: string,
): { readonly partner: CompleteOrganisation; readonly org: CompleteOrganisation } {
  // `PARTNER=org-b` as make(1) has it, or the name alone.
  const partner = completeOrganisation(lab, named.replace(/^PARTNER=/, ""), usage);
  const org = completeOrganisation(lab, options.text("org") ?? partnerOf(partner), usage);
  if (org === partner) throw usageError("--org names the partner itself", usage);
  return { partner, org };
}

const DEFAULT_LAB = "default";

export function labName(options: ParsedOptions): string {
  return options.text("name") ?? DEFAULT_LAB;
}

/**
 * The lab that `--name` names.
 * @throws DrawbridgeError `not_running` when there is none
 */
export function namedLab(options: ParsedOptions): Lab {
  const name = labName(options);
  const lab = readLab(labPaths(labDirectory(name)));
  if (lab !== undefined) return lab;
  throw new DrawbridgeError("not_running", `there is no lab ${name}`, {
    hint: `Start one with ${upTask(name)}.`,
  });
}

/**
 * The people and rooms of a lab that runs.
 * @throws DrawbridgeError `not_running`
 */
export function runningSeed(lab: Lab): Seed {
  const found = readSeed(lab);
  if (found !== undefined && liveSupervisor(lab) !== undefined) return found;
  throw new DrawbridgeError("not_running", `the lab ${lab.name} is not running`, {
    hint: `Start it with ${upTask(lab.name)}.`,
  });
}

function upTask(lab: string): string {
  return `./task fed:up${lab === DEFAULT_LAB ? "" : ` --name ${lab}`}`;
}

/** Does something that changes a lab while no other command does, and reports its progress on standard error. */
export async function withLockedLab(
  { paths }: Pick<Lab, "paths">,
  work: (progress: Progress) => Promise<number>,
): Promise<number> {
  const progress = progressOn(process.stderr, SOURCES.clock);
  const lock = await lockLab(paths, progress);
  try {
    return await work(progress);
  } finally {
    await lock.release();
  }
}
