// What a lab is: its identity, its names and its ports, kept in lab.json from start to start.
// Invariant: a server's name never changes once it was given, because its database and every room carry
// it; when its port has to change, the proxy maps the name to the new one.
import { z } from "zod";
import type { Clock, Random } from "../domain/clock.ts";
import { parseServerName, type ServerName } from "../domain/identifiers.ts";
import { readJson, writeJson } from "./files.ts";
import type { LabPaths } from "./layout.ts";
import { hostOf, ORGANISATION_NAMES, type OrganisationName } from "./organisations.ts";
import { type ChosenBlock, chooseBlock, type LabPorts, portsOfBlock } from "./ports.ts";

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
  serverNames: z.record(z.enum(ORGANISATION_NAMES), ServerNameField),
});
export type LabFile = z.output<typeof LabFile>;

export interface Lab {
  readonly id: string;
  readonly name: string;
  readonly paths: LabPaths;
  readonly portBase: number;
  readonly ports: LabPorts;
  readonly serverNames: Readonly<Record<OrganisationName, ServerName>>;
}

function labOf(file: LabFile, paths: LabPaths): Lab {
  return {
    id: file.id,
    name: file.name,
    paths,
    portBase: file.portBase,
    ports: portsOfBlock(file.portBase),
    serverNames: file.serverNames,
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
  sources: { readonly clock: Clock; readonly random: Random },
): Promise<{ lab: Lab; block: ChosenBlock; portsChanged: boolean }> {
  const before = readJson(LabFile, paths.state);
  const block = await chooseBlock(before?.portBase, sources.random);
  const ports = portsOfBlock(block.base);
  const file: LabFile = before
    ? { ...before, portBase: block.base }
    : {
        version: 1,
        id: sources.random.bytes(16).toString("hex"),
        name,
        createdAt: new Date(sources.clock.now()).toISOString(),
        portBase: block.base,
        serverNames: firstNames(ports),
      };
  writeJson(paths.state, file);
  return {
    lab: labOf(file, paths),
    block,
    portsChanged: before !== undefined && before.portBase !== block.base,
  };
}

function firstNames(ports: LabPorts): Record<OrganisationName, ServerName> {
  const nameOf = (organisation: OrganisationName) =>
    `${hostOf(organisation)}:${ports.organisations[organisation].federation}` as ServerName;
  return { "org-a": nameOf("org-a"), "org-b": nameOf("org-b"), "org-c": nameOf("org-c") };
}
