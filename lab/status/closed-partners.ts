// What an organisation's branch says of the other one: its entry in the registry.
import { parse } from "yaml";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { PLANE_NAMES } from "../../src/federation/plane-order.ts";
import { Partner } from "../../src/federation/registry/partner.ts";
import { Repository } from "../../src/federation/repository/repository.ts";
import { BRANCH } from "../configuration/control-repository.ts";
import type { Lab } from "../lab.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation, partnerOf } from "../organisations.ts";
import { containments } from "./federation.ts";

/** @throws DrawbridgeError `repository_unusable`; `config_invalid` when there is no such entry */
export async function entryOf(lab: Lab, organisation: CompleteOrganisation): Promise<Partner> {
  const repository = await Repository.open(lab.paths.organisation(organisation).controlRepository, BRANCH);
  const file = `registry/partners/${partnerOf(organisation)}.yaml`;
  const files = await repository.read(await repository.requireHead(), [file]);
  const found = Partner.safeParse(parse(files.get(file) ?? ""));
  if (found.success) return found.data;
  throw new DrawbridgeError("config_invalid", `${organisation} has no valid ${file}`, {
    hint: "See drawbridge federation check.",
  });
}

/** Whether every plane is declared closed. */
export function isRemoved({ planes }: Partner): boolean {
  return PLANE_NAMES.every((plane) => planes[plane] === "closed");
}

/** The organisations that have removed the other. */
export async function removals(lab: Lab): Promise<readonly CompleteOrganisation[]> {
  const entries = await Promise.all(
    COMPLETE_ORGANISATIONS.map(async (at) => [at, await entryOf(lab, at)] as const),
  );
  return entries.filter(([, entry]) => isRemoved(entry)).map(([at]) => at);
}

// What is closed between the two organisations of a lab, and which task takes it back.

export interface WayBack {
  /** Such as `org-b is contained at org-a`. */
  readonly facts: readonly string[];
  readonly commands: readonly string[];
}

/** By the registries; undefined where both admit each other. */
export async function wayBack(lab: Lab): Promise<WayBack | undefined> {
  return wayBackFrom(lab.name, await containments(lab), await removals(lab));
}

/**
 * @param contained who is contained, and where
 * @param removed the organisations that have removed the other
 */
export function wayBackFrom(
  lab: string,
  contained: readonly { readonly at: CompleteOrganisation; readonly partner: string }[],
  removed: readonly CompleteOrganisation[],
): WayBack | undefined {
  if (contained.length > 0) {
    return {
      facts: contained.map(({ at, partner }) => `${partner} is contained at ${at}`),
      commands: contained.map(
        ({ at, partner }) => `./task fed:break-glass restore ${partner} --org ${at}${named(lab)}`,
      ),
    };
  }
  if (removed.length === 0) return undefined;
  return {
    facts: removed.map((at) => `${partnerOf(at)} is removed at ${at}`),
    commands: [`./task fed:readmit${named(lab)}`],
  };
}

/** What is closed, why questions are refused then, and how to take it back. */
export function wayBackNote({ facts, commands }: WayBack): string {
  return [
    `${facts.join(", ")}: questions from one to the other are refused. To take it back:`,
    ...commands.map((command) => `  ${command}`),
  ].join("\n");
}

/**
 * The error of a question that could not be asked: where something is closed `wayBackNote` has said why, and how
 * to take it back, and neither is said again.
 */
export function withWayBack(lab: string, error: unknown, closed: WayBack | undefined): unknown {
  if (!(error instanceof DrawbridgeError)) return error;
  const { code, message } = error;
  if (closed !== undefined) {
    const said = code === "homeserver_refused" ? "the question was refused, as is said above" : message;
    return new DrawbridgeError(code, said, { cause: error });
  }
  if (code !== "homeserver_refused") return error;
  // As a restore leaves it: they are invited, and have not come yet.
  const hint = `./task fed:up${named(lab)} brings people and ghosts back into the shared rooms, such as after a restore.`;
  return new DrawbridgeError(code, message, { hint, cause: error });
}

function named(lab: string): string {
  return lab === "default" ? "" : ` --name ${lab}`;
}
