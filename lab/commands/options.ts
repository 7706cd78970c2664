// How the lab's tasks read their command lines.
import { parseArgs } from "node:util";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { type Lab, readLab } from "../lab.ts";
import { labDirectory, labPaths } from "../layout.ts";
import { type CompleteOrganisation, isComplete, parseOrganisation } from "../organisations.ts";
import { readSeed, type Seed } from "../seed/seed.ts";
import { liveSupervisor } from "../supervisor/client.ts";

type OptionSpec = Readonly<Record<string, { readonly type: "string" | "boolean"; readonly short?: string }>>;

export interface ParsedOptions {
  readonly positionals: readonly string[];
  readonly flag: (name: string) => boolean;
  readonly text: (name: string) => string | undefined;
}

const COMMON: OptionSpec = { name: { type: "string" }, help: { type: "boolean", short: "h" } };

/**
 * Parses a task's arguments; undefined when help was asked for, which is printed then.
 * @throws DrawbridgeError `usage`
 */
export function parseOptions(
  args: readonly string[],
  usage: string,
  options: OptionSpec = {},
  positionalsMax = 0,
): ParsedOptions | undefined {
  const wrong = (message: string) => new DrawbridgeError("usage", message, { hint: usage.trim() });
  let parsed: ReturnType<typeof parseArgs>;
  try {
    parsed = parseArgs({
      args: [...args],
      options: { ...COMMON, ...options },
      allowPositionals: positionalsMax > 0,
    });
  } catch (error) {
    throw wrong(error instanceof Error ? (error.message.split(". ")[0] ?? "") : "wrong arguments");
  }
  if (parsed.values["help"] === true) {
    process.stdout.write(`${usage.trim()}\n`);
    return undefined;
  }
  if (parsed.positionals.length > positionalsMax) throw wrong("too many arguments");
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
  throw new DrawbridgeError("usage", `${named} is neither org-a nor org-b`, { hint: usage.trim() });
}

export const DEFAULT_LAB = "default";

/**
 * The lab that `--name` names.
 * @throws DrawbridgeError `not_running` when there is none
 */
export function namedLab(options: ParsedOptions): Lab {
  const name = options.text("name") ?? DEFAULT_LAB;
  const lab = readLab(labPaths(labDirectory(name)));
  if (lab !== undefined) return lab;
  throw new DrawbridgeError("not_running", `there is no lab ${name}`, {
    hint: "Start one with ./task fed:up.",
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
    hint: "Start it with ./task fed:up.",
  });
}
