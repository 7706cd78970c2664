// What a lab is: its identity, its names and its ports, kept in lab.json from start to start.
// Invariant: a server's name never changes once it was given, because its database and every room carry
// it; when its port has to change, the proxy maps the name to the new one.
import * as z from "zod";
import { type Clock, type Random, systemClock, systemRandom } from "../src/domain/clock.ts";
import { parseServerName, type ServerName } from "../src/domain/identifiers.ts";
import { readJson, writeJson } from "./files.ts";
import type { LabPaths } from "./layout.ts";
import {
  hostOf,
  ORGANISATION_NAMES,
  type OrganisationName,
  organisationsWith,
  WITNESS,
} from "./organisations.ts";
import { type ChosenBlock, chooseBlock, type LabPorts, portsOfBlock } from "./ports.ts";

/** Time and randomness, passed in where a test replaces them. */
export interface Sources {
  readonly clock: Clock;
  readonly random: Random;
}

export const SOURCES: Sources = { clock: systemClock, random: systemRandom };

/** Repeats `attempt` until it gives a value; undefined when it has given none after `timeoutMs`. */
export async function pollFor<Value>(
  attempt: () => Value | undefined | Promise<Value | undefined>,
  times: { readonly timeoutMs: number; readonly everyMs: number },
  clock: Clock = SOURCES.clock,
): Promise<Value | undefined> {
  for (const deadline = clock.now() + times.timeoutMs; ; await clock.sleep(times.everyMs)) {
    const value = await attempt();
    if (value !== undefined || clock.now() > deadline) return value;
  }
}

const ServerNameField = z.string().transform((text, context) => {
  const name = parseServerName(text);
  if (name !== undefined) return name;
  context.addIssue({ code: "custom", message: "not a server name" });
  return z.NEVER;
});

export const LabFile = z.strictObject({
  version: z.literal(1),
  /** Random, and carried by every process of the lab. */
  id: z.string().regex(/^[0-9a-f]{32}$/),
  name: z.string(),
  createdAt: z.string(),
  portBase: z.int(),
  serverNames: z.strictObject({
    "org-a": ServerNameField,
    "org-b": ServerNameField,
    "org-c": ServerNameField,
    [WITNESS]: ServerNameField,
  }),
  /** Whether the neutral witness runs. It keeps its name either way: A and B know it by that. */
  witness: z.boolean().default(false),
});
export type LabFile = z.output<typeof LabFile>;

export interface Lab {
  readonly id: string;
  readonly name: string;
  readonly paths: LabPaths;
  readonly portBase: number;
  readonly ports: LabPorts;
  readonly serverNames: Readonly<Record<OrganisationName, ServerName>>;
  /** The organisations that run: the witness only where it was asked for. */
  readonly organisations: readonly OrganisationName[];
}

function labOf(file: LabFile, paths: LabPaths): Lab {
  const ports = portsOfBlock(file.portBase);
  return {
    id: file.id,
    name: file.name,
    paths,
    portBase: file.portBase,
    ports,
    serverNames: { ...firstNames(ports), ...file.serverNames },
    organisations: organisationsWith(file.witness),
  };
}

/** The lab of a folder; undefined when none was ever made there. */
export function readLab(paths: LabPaths): Lab | undefined {
  const file = readJson(LabFile, paths.state);
  return file === undefined ? undefined : labOf(file, paths);
}

/**
 * Makes the lab of a folder, or takes it up again with ports that are free now.
 * @returns the lab, and the lock on its ports, to be held until the supervisor runs
 */
export async function prepareLab(
  name: string,
  paths: LabPaths,
  sources: Sources,
  withWitness = false,
): Promise<{ lab: Lab; block: ChosenBlock; portsChanged: boolean }> {
  const before = readJson(LabFile, paths.state);
  const block = await chooseBlock(before?.portBase, sources.random);
  const ports = portsOfBlock(block.base);
  const file: LabFile = before
    ? {
        ...before,
        portBase: block.base,
        serverNames: { ...firstNames(portsOfBlock(before.portBase)), ...before.serverNames },
        witness: before.witness || withWitness,
      }
    : {
        version: 1,
        id: sources.random.bytes(16).toString("hex"),
        name,
        createdAt: new Date(sources.clock.now()).toISOString(),
        portBase: block.base,
        serverNames: firstNames(ports),
        witness: withWitness,
      };
  writeJson(paths.state, file);
  return {
    lab: labOf(file, paths),
    block,
    portsChanged: before !== undefined && before.portBase !== block.base,
  };
}

/**
 * Notes that the witness runs in this lab from now on.
 * @throws DrawbridgeError `config_invalid` when the lab's file is damaged
 */
export function admitWitness(paths: LabPaths): Lab {
  const before = readJson(LabFile, paths.state);
  if (before === undefined) throw new TypeError("there is no lab to add a witness to");
  const file = { ...before, witness: true };
  writeJson(paths.state, file);
  return labOf(file, paths);
}

function firstNames(ports: LabPorts): Record<OrganisationName, ServerName> {
  const nameOf = (organisation: OrganisationName) =>
    `${hostOf(organisation)}:${ports.organisations[organisation].federation}` as ServerName;
  return Object.fromEntries(ORGANISATION_NAMES.map((name) => [name, nameOf(name)])) as Record<
    OrganisationName,
    ServerName
  >;
}
