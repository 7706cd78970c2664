// What is closed between the two organisations of a lab, and which task takes it back.
import { DrawbridgeError } from "../src/domain/errors.ts";
import type { Lab } from "./lab.ts";
import { removals } from "./offboard/entry.ts";
import { type CompleteOrganisation, partnerOf } from "./organisations.ts";
import { containments } from "./reconciled.ts";

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
